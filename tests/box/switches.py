# SPDX-License-Identifier: Apache-2.0

"""Context switches on the box: guests in place, plans, and silent peers."""

from collections.abc import Iterator, Sequence
import contextlib
import json
import tempfile
import threading
import time
from typing import Any

import guest
import layout
import secondaries
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.configuration import Switch
import seed
import shell
from tests.box import fleet as fleets
from tests.box.primaries import delete
from tests.box.services import wait_until

#: Seconds of silence after which a guest declares a peer dead.
DEAD_S = 5.0
#: Longest time between two lines of a guest that runs.
_LINE_S = 2.5
#: Seconds in which Watcher notices the state of an audit.
_ROUNDS_S = 22
#: Seconds for a plan.
_PLAN_S = 240
#: A guest that is busy for some seconds, and idle afterwards.
_COMMAND = (
    'console=ttyS0 quiet panic=-1 random.trust_cpu=on no_timer_check '
    'tsc=reliable mitigations=off nokaslr cryptomgr.notests '
    'rdinit=/bin/busybox -- sh -c "B=/bin/busybox; $B mkdir -p /proc /dev; '
    '$B mount -t proc proc /proc; $B mount -t devtmpfs dev /dev; '
    'exec </dev/ttyS0 >/dev/ttyS0 2>&1; '
    'b=$($B cat /proc/sys/kernel/random/boot_id); u=0; '
    'while :; do u=$((u+1)); echo UNITS $b $u $b $u; '
    'read t r </proc/uptime; '
    'if [ ${{t%.*}} -lt {busy_s} ]; then i=0; '
    'while [ $i -lt 3000 ]; do i=$((i+1)); done; '
    'else $B sleep 5; fi; done"')


def image(cloud: Any, name: str, busy_s: int) -> str:
    """Make an image of guests that are busy at first; return its id.

    :param busy_s: seconds from their boot on
    """
    like = cloud.image.find_image('worker-idle', ignore_missing=False)
    return str(cloud.create_image(
        name, filename=str(layout.GUEST / 'disk.raw'), disk_format='raw',
        container_format='bare', visibility='public', wait=True,
        allow_duplicates=True, kernel_id=like.kernel_id,
        ramdisk_id=like.ramdisk_id,
        os_command_line=_COMMAND.format(busy_s=busy_s)).id)


class Guests:
    """Secondaries on hosts of the test's choice.

    ``names`` maps the UUID of each one to its name.
    """

    def __init__(self, cloud: Any) -> None:
        self.cloud = cloud
        self.names: dict[str, str] = {}

    def boot(self, *wanted: tuple[str, str, str, str | None],
             image_id: str | None = None) -> list[str]:
        """Boot guests, (name, flavor, host, lease label); return UUIDs.

        A host opens only after some calm seconds, so Nova is asked again.
        """
        image_id = image_id or self.cloud.image.find_image('worker-cpu').id
        return [str(wait_until(
            lambda one=one: self._boot(image_id, *one), 180,
            f'{one[0]} boots on {one[2]}', period=2)) for one in wanted]

    def _boot(self, image_id: str, name: str, flavor: str, host: str,
              lease: str | None) -> str | None:
        """Boot a guest; return its UUID, or None if its host is closed."""
        uuid = str(self.cloud.compute.create_server(
            name=name, networks='none', image_id=image_id,
            flavor_id=self.cloud.compute.find_flavor(flavor).id,
            availability_zone=f'nova:{host}',
            metadata={vocabulary.LEASE_METADATA: lease} if lease else {}).id)
        self.names[uuid] = name
        server = wait_until(
            lambda: (found := self.cloud.compute.get_server(uuid))
            and found.status != 'BUILD' and found, 240,
            f'{name} is built')
        if server.status == 'ACTIVE':
            return uuid
        delete(self.cloud, uuid)
        del self.names[uuid]
        return None

    def look(self, uuids: Sequence[str] | None = None) -> list[fleets.Seen]:
        """Return those that exist, in the order in which they are given."""
        wanted = list(self.names) if uuids is None else list(uuids)
        try:
            found = {one.id: one for one in self.cloud.compute.servers(
                all_projects=True)}
        except fleets.AWAY:
            return []
        return [fleets.Seen(
            one.name, one.status, one.task_state, one.compute_host,
            one.instance_name, 'secondary:preempted' in (one.metadata or {}))
            for uuid in wanted if (one := found.get(uuid))]

    def states(self, uuids: Sequence[str]) -> list[str]:
        """Return the states of those that exist and have no task."""
        return [one.status if one.task is None else 'BUSY'
                for one in self.look(uuids)]

    def wait_states(self, uuids: Sequence[str], state: str, timeout: float
                    ) -> None:
        """Wait until all that exist are in a state, without a task."""
        wait_until(
            lambda: (found := self.states(uuids))
            and set(found) == {state}, timeout,
            lambda: f'all are {state}: {self.look(uuids)}', period=0.5)

    def lease_of(self, uuid: str) -> str:
        """Return the id of a guest's lease."""
        server = self.cloud.compute.get_server(uuid)
        label = (server.metadata or {}).get(vocabulary.LEASE_METADATA)
        return f'{server.project_id}:{label}' if label else uuid

    def delete(self) -> None:
        """Delete all of them."""
        delete(self.cloud, *self.names)
        self.names.clear()


def operation(number: int, kind: str, uuid: str, lease: str,
              source: str, target: str | None = None,
              after: Sequence[int] = ()) -> dict[str, Any]:
    """Return an operation as ``make_switch`` reads it."""
    return {'id': number, 'kind': kind, 'instance': uuid, 'lease': lease,
            'source': source, 'target': target, 'after': list(after)}


def operations_of(switch: Switch) -> list[dict[str, Any]]:
    """Return the moves of a switch; each pool waits for the one before."""
    found: list[dict[str, Any]] = []
    before: list[int] = []
    for pool in switch.pools:
        first = len(found) + 1
        found += [operation(first + number, str(one.kind), one.member,
                            one.lease, str(one.source), one.target, before)
                  for number, one in enumerate(pool)]
        before = list(range(first, first + len(pool)))
    return found


def launch(guests: Guests, operations: Sequence[dict[str, Any]],
           kind: str = 'select') -> str:
    """Have the applier carry out operations; return the plan's UUID."""
    with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
        json.dump({'operations': list(operations), 'kind': kind,
                   'names': guests.names}, file)
        file.flush()
        done = shell.run(
            [layout.BIN / 'python', '-m', 'tests.box.make_switch', file.name,
             layout.ETC / 'watcher/watcher-1.conf',
             layout.ETC / 'secondary_scheduler/policies.conf'],
            netns=True, cwd=layout.SOURCE,
            env={'PYTHONPATH': str(layout.SOURCE)})
    return str(done.stdout).strip().splitlines()[-1]


def plan_state(cloud: Any, plan: str) -> str:
    """Return the state of an action plan."""
    return str(seed.watcher(cloud).get(f'/action_plans/{plan}').json().get(
        'state'))


def wait_plan(cloud: Any, plan: str, timeout: float = _PLAN_S) -> str:
    """Wait until a plan has ended; return its state."""
    return str(wait_until(
        lambda: (state := plan_state(cloud, plan)) not in (
            'RECOMMENDED', 'PENDING', 'ONGOING', 'None') and state, timeout,
        lambda: f'plan {plan} has ended: {actions(cloud, plan)}'))


def actions(cloud: Any, plan: str) -> list[dict[str, Any]]:
    """Return the actions of a plan."""
    return list(seed.listed(seed.watcher(cloud), 'actions',
                            action_plan_uuid=plan))


def check_dependencies(cloud: Any, plan: str) -> None:
    """Assert that no operation ran that waits for a failed one."""
    found = {one['uuid']: one for one in actions(cloud, plan)}
    for one in found.values():
        if one['state'] in ('SUCCEEDED', 'ONGOING'):
            waits = [found[parent]['state'] for parent in one['parents']]
            assert set(waits) <= {'SUCCEEDED', 'SKIPPED'}, (one, waits)


class Peers(threading.Thread):
    """Guests that hear each other each second, by the lines they print.

    A guest hears a peer that prints, and its own clock stands still while it
    is suspended.  ``declared`` counts the peers that a guest has declared
    dead: it ran for ``DEAD_S`` without hearing of them.
    """

    def __init__(self, uuids: Sequence[str]) -> None:
        super().__init__(daemon=True, name='peers')
        self._uuids = list(uuids)
        self._ended = threading.Event()
        self._silence: dict[tuple[str, str], float] = {}
        self._last: dict[str, float] = {}
        self._size: dict[str, int] = {}
        self.declared = 0
        self.longest = 0.0

    def run(self) -> None:
        """Look at all consoles until the end."""
        while not self._ended.wait(0.1):
            now = time.monotonic()
            for one in self._uuids:
                with contextlib.suppress(OSError):
                    size = guest.console(one).stat().st_size
                    if size != self._size.get(one, size):
                        self._note_line(one, now)
                    self._size[one] = size

    def _note_line(self, one: str, now: float) -> None:
        """Note that a guest has printed: it ran, and the others hear it."""
        ran = now - self._last.get(one, now)
        self._last[one] = now
        for other in self._uuids:
            if other == one:
                continue
            self._silence[other, one] = 0.0
            if ran > _LINE_S or other not in self._last:
                continue        # it was suspended in between
            before = self._silence.get((one, other), 0.0)
            after = self._silence[one, other] = before + ran
            self.longest = max(self.longest, after)
            self.declared += before <= DEAD_S < after

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()


@contextlib.contextmanager
def parameters(cloud: Any, **values: Any) -> Iterator[None]:
    """Run a block while the CONTINUOUS audit has other parameters."""
    api, audit = seed.watcher(cloud), seed.switch(cloud)
    before = api.get(f'/audits/{audit}').json()['parameters']

    def patch(*changes: dict[str, Any]) -> None:
        answer = api.patch(f'/audits/{audit}', json=list(changes))
        assert answer.ok, answer.text

    def change(wanted: dict[str, Any]) -> None:
        patch(*({'op': 'add', 'path': f'/parameters/{name}', 'value': value}
                for name, value in wanted.items()))
        # Watcher runs the audit as it was when it was last switched on.
        for state in ('SUSPENDED', 'ONGOING'):
            patch({'op': 'replace', 'path': '/state', 'value': state})
            time.sleep(_ROUNDS_S)

    change(values)
    try:
        yield
    finally:
        change({name: before[name] for name in values if name in before})


def units_of(uuids: Sequence[str]) -> secondaries.Units:
    """Count the units of work of guests."""
    return secondaries.Units(list(uuids))
