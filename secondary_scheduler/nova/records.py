# SPDX-License-Identifier: Apache-2.0

"""Queries of Nova's cell databases for the weighers, in batches."""

from collections.abc import Collection, Iterable, Sequence
import dataclasses
import datetime
import typing

from nova import context as nova_context
from nova import objects
from nova.db.main import api as db
from nova.db.main import models
import sqlalchemy as sa

from secondary_scheduler.model import vocabulary
from secondary_scheduler.nova import request

#: The event by which Nova records each attempt to build an instance.
BUILD_EVENT = 'compute__do_build_and_run_instance'

#: Number of a cell's last events that are searched for builds.
LAST_EVENTS = 1000


@dataclasses.dataclass(frozen=True)
class InstanceUsage:
    """Resources that the resource tracker counts for an instance.

    * ``memory_mb`` in MiB, ``disk_gb`` in GiB.
    * ``born``: the later of creation and launch, an approximation of the time
      of its host's claim.
    * ``number``: row in the database; orders instances of the same second.
    """

    uuid: str
    secondary: bool
    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    born: datetime.datetime | None = None
    number: int = 0


def has_flavor(instance: typing.Any) -> bool:
    """Return whether an Instance was loaded with its flavor."""
    return 'flavor' in instance and instance.flavor is not None


def read_instance(instance: typing.Any) -> InstanceUsage | None:
    """Read an Instance, without loading missing fields.

    :returns: None if it was loaded without its flavor.
    """
    if not has_flavor(instance):
        return None
    flavor = instance.flavor
    on_volume = 'image_ref' in instance and not instance.image_ref
    # As in compute/resource_tracker.py _update_usage(): its sums are whole
    # GiB, so a swap below 1 GiB does not count.
    disk_gb = (flavor.ephemeral_gb + (flavor.swap or 0) // 1024
               + (0 if on_volume else flavor.root_gb))
    times = [getattr(instance, name) for name in ('created_at', 'launched_at')
             if name in instance and getattr(instance, name) is not None]
    return InstanceUsage(
        uuid=instance.uuid,
        secondary=vocabulary.is_marked(request.extra_specs(flavor)),
        vcpus=flavor.vcpus, memory_mb=flavor.memory_mb, disk_gb=disk_gb,
        born=max(times, default=None),
        number=instance.id if 'id' in instance else 0)


class Records:
    """Reads the databases of the cells."""

    def __init__(self) -> None:
        self._cells: dict[str, typing.Any] = {}

    def of_instances(self, cell: str, uuids: Collection[str]
                     ) -> dict[str, InstanceUsage]:
        """Return the records of instances, deleted ones included."""
        with self._target(cell, read_deleted='yes') as context:
            found = objects.InstanceList.get_by_filters(
                context, {'uuid': list(uuids)}, expected_attrs=['flavor'])
        return {record.uuid: record for record in map(read_instance, found)
                if record is not None}

    def on_hosts(self, cell: str, hosts: Collection[str]
                 ) -> dict[str, list[InstanceUsage]]:
        """Return the records of all instances that claim from hosts now."""
        with self._target(cell) as context:
            found = objects.InstanceList.get_by_filters(
                context, {'host': list(hosts), 'deleted': False,
                          'soft_deleted': True}, expected_attrs=['flavor'])
        records: dict[str, list[InstanceUsage]] = {host: [] for host in hosts}
        for instance in found:
            record = read_instance(instance)
            if record is not None:
                records.setdefault(instance.host, []).append(record)
        return records

    def measured_disk(self, cell: str, hosts: Collection[str]
                      ) -> dict[tuple[str, str], int | None]:
        """Return the free disk (GiB) that hosts measured last.

        :returns: by (host, nodename), None where the driver measures none.
        """
        with self._target(cell) as context:
            return {(host, node): measured for host, node, measured
                    in _measured_disk(context, hosts)}

    def failures(self, cell: str) -> dict[str, list[
            tuple[datetime.datetime, str]]]:
        """Return failed builds by host, the newest first.

        :returns: lists of (start, instance).
        """
        with self._target(cell) as context:
            rows = _last_failures(context, LAST_EVENTS)
        found: dict[str, list[tuple[datetime.datetime, str]]] = {}
        for host, began, uuid in rows:
            found.setdefault(host, []).append((began, uuid))
        return found

    def _target(self, cell: str, **context: str) -> typing.Any:
        admin = nova_context.get_admin_context(**context)
        if cell not in self._cells:
            self._cells[cell] = objects.CellMapping.get_by_uuid(admin, cell)
        return nova_context.target_cell(admin, self._cells[cell])


@db.pick_context_manager_reader
def _measured_disk(context: typing.Any, hosts: Collection[str]
                   ) -> Sequence[typing.Any]:
    row = models.ComputeNode
    rows: Sequence[typing.Any] = context.session.query(
        row.host, row.hypervisor_hostname, row.disk_available_least).filter(
            row.host.in_(hosts), row.deleted == 0).all()
    return rows


@db.pick_context_manager_reader
def _last_failures(context: typing.Any, limit: int
                   ) -> Sequence[typing.Any]:
    # From the end of the primary key: the table has no other index, and
    # keeps the events of deleted instances.
    event, action = models.InstanceActionEvent, models.InstanceAction
    instance = models.Instance
    tail = context.session.query(
        event.id, event.event, event.host, event.start_time,
        event.action_id).order_by(event.id.desc()).limit(limit).subquery()
    # Neither result nor finish_time of an event can be used.  A build that is
    # retried on another host is a "Success" here, and Nova records the end of
    # each further attempt at the first one (db/main/api.py
    # action_event_finish).  But after a failed build the instance is on
    # another host or none.
    rows: Sequence[typing.Any] = context.session.query(
        tail.c.host, tail.c.start_time, action.instance_uuid).join(
            action, action.id == tail.c.action_id).join(
                instance, instance.uuid == action.instance_uuid).filter(
                    tail.c.event == BUILD_EVENT,
                    tail.c.host.is_not(None),
                    sa.or_(instance.host.is_(None),
                           instance.host != tail.c.host)).order_by(
                               tail.c.id.desc()).all()
    return rows


def newest_instances(records: Iterable[InstanceUsage],
           count: int) -> list[InstanceUsage]:
    """Return the records of the instances created last."""
    known = [(one.born, one.number, one.uuid, one) for one in records
             if one.born is not None]
    return [one[-1] for one in sorted(known, reverse=True)[:count]]
