# SPDX-License-Identifier: Apache-2.0

"""Profiles of lease simulations, as configuration files.

The profiles of the thesis are here by name; any other file can be used.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import pathlib

from oslo_config import cfg

from secondary_scheduler.conf import leases
from secondary_scheduler.leases import drivers, settings
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.reading.options import load_options
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.workloads.requests import TraceRequest

_FOLDER = pathlib.Path(__file__).parent
_OPTS = [
    cfg.FloatOpt('runtime_overhead', default=0.0, min=0.0,
                 help='Percent by which VMs are slower.'),
    cfg.IntOpt('boot_overhead', default=0, min=0,
               help='Seconds that VMs take to boot and to shut down.'),
    cfg.BoolOpt('haizea_durations', default=False,
                help='Repeat an error of Haizea in adding these overheads: a '
                     'job asks for runtime_overhead more than it runs, '
                     'instead of more than its owner asked for, and is not '
                     'slowed. So its end is known rather well. With it the '
                     'figures of the thesis for VMs are obtained.'),
    cfg.BoolOpt('haizea_migrations', default=False,
                help='Resume leases as late as Haizea. It assumes that the '
                     'memory and the image of each VM of a lease move one '
                     'after the other, even if the lease stays on its hosts. '
                     'With it the waits of the thesis are obtained.')]
_GROUPS = {leases.GROUP.name: leases.OPTS, 'lease_simulation': _OPTS}


class ProfileError(InputError):
    """Unknown or invalid profile."""


class _InTurn(OperationTimes):
    """Migrations as Haizea estimates them.

    See ``estimate_migration_time`` of its schedulers, in the branch 1.1.
    """

    def migration_time(self, before: Sequence[Ints], after: Sequence[Ints],
                       memory: Sequence[int]) -> int | None:
        """Return the time to move all memory; None if it cannot move."""
        found = super().migration_time(before, after, memory)
        return None if found is None else self.first_move_time(before, memory)

    def first_move_time(self, before: Sequence[Ints], memory: Sequence[int]
                        ) -> int:
        """Return the time to move all memory, one VM after the other."""
        return super().first_move_time(before, [sum(
            int(old.sum()) * size
            for old, size in zip(before, memory, strict=True))])


@dataclasses.dataclass(frozen=True)
class LeaseProfile:
    """Settings of the scheduler, and overheads of jobs in VMs."""

    name: str
    settings: Settings
    runtime_overhead: float
    boot_overhead: int
    haizea_durations: bool

    def jobs(self, requests: Iterable[TraceRequest]) -> list[TraceRequest]:
        """Return the requests with the overheads of VMs."""
        return [one.in_vms(self.runtime_overhead, self.boot_overhead,
                           haizea=self.haizea_durations)
                for one in requests]


def profile_names() -> list[str]:
    """Return the names of the profiles that come with the simulator."""
    return sorted(one.stem for one in _FOLDER.glob('*.conf'))


def read_profile(name: str, changes: Sequence[tuple[str, str]] = ()
                 ) -> LeaseProfile:
    """Return a profile by name or file, with some options changed."""
    path = (_FOLDER / f'{name}.conf' if name in profile_names()
            else pathlib.Path(name))
    if not path.is_file():
        raise ProfileError(f'{name} is neither a file nor a profile; there '
                           'are: ' + ', '.join(profile_names()))
    conf = cfg.ConfigOpts()
    # By name: a group object would keep the values of all profiles.
    for group, options in _GROUPS.items():
        conf.register_opts(options, group=group)
    try:
        load_options(conf, [], project='secondary_scheduler',
                     default_config_files=[str(path)], default_config_dirs=[])
        for key, value in changes:
            _change(conf, key, value)
        found = settings.from_options(conf.secondary_leases)
    except InputError:
        raise
    except (cfg.Error, ValueError, drivers.DriverError) as exc:
        raise ProfileError(f'{path}: {exc}') from exc
    simulation = conf.lease_simulation
    if simulation.haizea_migrations:
        found = dataclasses.replace(found, durations=_InTurn(
            **dataclasses.asdict(found.durations)))
    return LeaseProfile(path.stem, found, simulation.runtime_overhead / 100,
                        simulation.boot_overhead, simulation.haizea_durations)


def _change(conf: cfg.ConfigOpts, key: str, value: str) -> None:
    for group, options in _GROUPS.items():
        for option in options:
            if key in (option.dest, *(
                    old.name for old in option.deprecated_opts)):
                try:
                    conf.set_override(option.dest, option.type(value),
                                      group=group)
                except ValueError as exc:
                    raise ProfileError(f'{key}: {exc}') from exc
                return
    raise ProfileError(f'there is no option {key}; there are: ' + ', '.join(
        option.dest for option in (*leases.OPTS, *_OPTS)))
