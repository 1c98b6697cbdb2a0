# SPDX-License-Identifier: Apache-2.0

"""A cloud in memory with operations of some duration, and its owners."""

import dataclasses
import heapq
import itertools
import uuid

from secondary_scheduler.estimation.learning import Point
from secondary_scheduler.leases.api.db import plans, quotas
from secondary_scheduler.leases.api.db.models import Nodes
from secondary_scheduler.leases.api.db.requests import LeaseRequest
from secondary_scheduler.leases.engine.engine import Engine, EngineOptions
from secondary_scheduler.leases.engine.values import (
    OFF,
    CloudDown,
    CloudState,
    Failure,
    LeaseHost,
    LeaseOperation,
    LeaseServer,
    Nature,
    Postponed,
)
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.planner import Settings
from tests.unit.leases.api import services
from tests.unit.leases.api.services import NOW

FLAVORS = {'small': (1, 128, 1, 1), 'large': (3, 128, 1, 1)}
HOST = (4, 1024, 10, 4)
LIMITS = quotas.QuotaLimits(100, 1000)
#: 128 MB take 3 s, and 4 s by the plan.
DURATIONS = OperationTimes(suspend_rate=50.0, resume_rate=50.0, command=0.5,
                           shutdown=2, migration_rate=None, margin=0.3)
OPTIONS = EngineOptions(Settings(durations=DURATIONS), boot_s=10, lead=4.0)
AFTER = {LeaseOperation.BOOT: 'ACTIVE', LeaseOperation.RESUME: 'ACTIVE',
         LeaseOperation.SUSPEND: 'SUSPENDED'}
BEFORE = {LeaseOperation.RESUME: 'SUSPENDED', LeaseOperation.SUSPEND: 'ACTIVE'}


class Nova:
    """``values.LeaseCloud`` with operations that take ``takes[kind]`` seconds.

    ``story`` has each change of a server: (time, server, status).  A host
    takes ``fetch`` seconds for an image, on request or when a server boots
    from it first.  ``spoilt`` has the cases in which both happen at once.
    """

    def __init__(self, clock, hosts=('h1', 'h2', 'h3')):
        self.clock = clock
        self.servers = {}
        self.hosts = {name: LeaseHost(name, HOST, HOST) for name in hosts}
        self.takes = {
            LeaseOperation.BOOT: 6,
            LeaseOperation.SUSPEND: 3,
            LeaseOperation.RESUME: 3,
            LeaseOperation.DELETE: 1,
        }
        self.latency = 1.5
        self.down = False
        self.silent = set()     # hosts in a cell that does not answer
        #: Returns whether Nova cannot show a server.
        self.hides = lambda server: False
        self.refuses = set()    # hosts on which nothing boots
        #: Returns (nature, reason) if it refuses an operation.
        self.refusal = lambda order: None
        #: Returns the placement constraints.
        self.constrain = lambda planned: ()
        #: Most unfinished operations.
        self.most_pending = 1000
        self.fetch = 0
        self.keeps_images = True
        self.asked, self.used, self.verified = {}, set(), set()
        self.there = {}         # (host, image): time of its arrival
        self.spoilt = []
        self.booted = {}        # the last server that was booted for a node
        self.pending = {}
        self.failures = {}
        self.took = []
        self.story = []
        self.ordered = []
        self._due = []
        self._count = itertools.count()

    # -- interface for the engine

    def observe_state(self, known):
        if self.down:
            raise CloudDown('nova-api is away')
        return CloudState(
            {key: one for key, one in self.servers.items()
             if not self.is_hidden(key)},
            dict(self.hosts),
            FLAVORS,
            frozenset(self.pending),
            dict(self.failures),
            tuple(self.took),
            dict(self.asked),
            frozenset(self.used),
            frozenset(self.verified),
            {place: key for place, key in self.booted.items()
             if key in self.servers and self.is_hidden(key)},
            frozenset(known) - self.servers.keys(),
            frozenset(self.silent),
            self.most_pending - len(self.pending),
        )

    def is_hidden(self, key):
        return (self.servers[key].host in self.silent
                or self.hides(self.servers[key]))

    def find_constraints(self, planned):
        return self.constrain(planned)

    def forget_flavors(self):
        pass

    def order_operations(self, orders):
        if self.down:
            raise CloudDown('nova-api is away')
        for one in orders:
            assert one.place not in self.pending
            self.ordered.append((self.clock.now, one))
            if one.kind is LeaseOperation.CACHE_IMAGE:
                self.asked[one.host, one.build.image] = self.clock.now
            else:
                self.pending[one.place] = one
            self._at(max(one.at, self.clock.now + self.latency),
                     self._begin, one)

    # -- progress of operations

    def _at(self, time, what, *arguments):
        heapq.heappush(self._due, (time, next(self._count), what, arguments))

    def run(self, until):
        """Carry out all that is due up to a time."""
        while self._due and self._due[0][0] <= until:
            time, _, what, arguments = heapq.heappop(self._due)
            what(time, *arguments)

    def _fail(self, time, order, why, nature=Nature.TRANSIENT):
        self.pending.pop(order.place, None)
        key = order.place, order.kind
        before = self.failures.get(key)
        self.failures[key] = Failure(1 + (before.count if before else 0),
                                     time, order.host, why, nature,
                                     order.build and order.build.trust)

    def change(self, time, key, **changes):
        self.servers[key] = dataclasses.replace(
            self.servers[key], **{'changed': str(time), **changes})
        self.story.append((time, key, self.servers[key].status))

    def _begin(self, time, order):
        if self.down or time > order.until:
            self._fail(time, order, 'nova-api is away')
        elif order.host in self.silent or (
                order.server in self.servers
                and self.is_hidden(order.server)):
            self._fail(time, order, 'its cell does not answer')
        elif (refused := self.refusal(order)) is not None:
            nature, why = refused
            self._fail(time, order, why, nature)
        elif order.kind is LeaseOperation.BOOT:
            self._boot(time, order)
        elif order.kind is LeaseOperation.CACHE_IMAGE:
            self._cache(time, order)
        elif order.kind is LeaseOperation.VERIFY:
            self.verified.add(order.place[0])
            self._done(time, order, 0)
        elif order.server not in self.servers:
            self._done(time, order, 0)
        elif order.kind is LeaseOperation.NOTICE:
            self.change(time, order.server, notice=order.text)
            self._done(time, order, 0)
        elif order.kind is LeaseOperation.DELETE:
            self._at(
                time + self.takes[LeaseOperation.DELETE], self._delete, order)
        elif self.servers[order.server].status != BEFORE[order.kind]:
            self._fail(time, order, 'it does not fit')
        else:
            self.change(time, order.server, busy=True)
            self._at(time + self.takes[order.kind], self._end, order, time)

    def _cache(self, time, order):
        copy = order.host, order.build.image
        if self.keeps_images:
            self.there.setdefault(copy, time + self.fetch)
            self._done(time, order, 0)
        else:
            del self.asked[copy]
            self._fail(time, order, 'not allowed')

    def _boot(self, time, order):
        if order.host in self.refuses:
            self._fail(time, order, 'No valid host', Nature.CAPACITY)
            return
        there = [key for key, one in self.servers.items()
                 if (one.lease, one.node) == order.place
                 and one.project == order.project
                 and not self.is_hidden(key)]
        for key in [key for key in there
                    if self.servers[key].status == 'ERROR']:
            there.remove(key)
            self._delete(time, dataclasses.replace(order, server=key))
            self.pending[order.place] = order
        if there:
            self._done(time, order, 0)
            return
        key = str(uuid.uuid5(uuid.UUID(int=1), str(next(self._count))))
        self.servers[key] = LeaseServer(
            key, order.project, order.host, 'BUILD',
            FLAVORS[order.build.flavor], *order.place, busy=True,
            user=order.build.user, created=time)
        copy = order.host, order.build.image
        fetched = self.there.setdefault(copy, time + self.fetch)
        if copy in self.asked and time < fetched:
            self.spoilt.append((time, *copy))
        self._at(
            max(time, fetched) + self.takes[LeaseOperation.BOOT],
            self._end,
            dataclasses.replace(order, server=key),
            time,
        )

    def _end(self, time, order, began):
        if order.server not in self.servers:
            self._done(time, order, 0)
            return
        self.change(time, order.server, status=AFTER[order.kind], busy=False)
        if order.kind is LeaseOperation.BOOT:
            self.booted[order.place] = order.server
        if order.kind is LeaseOperation.BOOT and order.build.image:
            self.used.add((order.host, order.build.image))
        self._done(time, order, time - began)

    def _delete(self, time, order):
        self.servers.pop(order.server, None)
        self.story.append((time, order.server, 'DELETED'))
        self._done(time, order, 0)

    def _done(self, time, order, seconds):
        self.pending.pop(order.place, None)
        self.failures.pop((order.place, order.kind), None)
        if seconds:
            self.took.append(Point(order.kind, 1, seconds, 128))

    def stray(self, host='h1', need=(2, 128, 1, 1), project='p1', **changes):
        """Create a server without a lease; return its UUID."""
        key = str(uuid.uuid5(uuid.UUID(int=2), str(next(self._count))))
        self.servers[key] = dataclasses.replace(LeaseServer(
            key, project, host, 'ACTIVE', need, name='mine', user='alice',
            flavor='medium', created=self.clock.now), **changes)
        return key

    # -- queries for tests

    def of(self, lease):
        """Return the servers of a lease, by node."""
        return {one.node: one for one in self.servers.values()
                if one.lease == lease}

    def statuses(self, lease):
        return [one.status for _, one in sorted(self.of(lease).items())]

    def load(self):
        """Return the amounts in use on each host, by resource."""
        found = {}
        for one in self.servers.values():
            if one.status not in OFF or one.busy:
                held = found.setdefault(one.host, [0] * 4)
                for index, amount in enumerate(one.need):
                    held[index] += amount
        return found


class World:
    """A database of leases, a cloud, and an engine that can be killed."""

    def __init__(self, test, options=OPTIONS, **nova):
        self.service = services.on(test, 'memory')
        self.clock = self.service.store._clock
        self.service.quotes._clock = self.clock
        self.clock.now = float(NOW)
        self.nova = Nova(self.clock, **nova)
        self.store = self.service.store
        self.options = options
        self.engine = None
        self.overloads = []
        self._numbers = itertools.count(1)
        self.restart()

    def restart(self):
        """Kill the engine; another one takes over."""
        self.engine = self.another()

    def another(self):
        return Engine(self.service.database, self.store, self.nova,
                      self.options, self.clock)

    def ask(self, number, flavor='small', project='p1', **terms):
        """Request a lease of ``number`` nodes; return its UUID."""
        request = self._request(number, flavor, project, terms)
        self.store.create(request, LIMITS)
        return request.uuid

    def quote(self, number, flavor='small', project='p1', **terms):
        """Request a quote for a lease; return the quote's UUID."""
        request = self._request(number, flavor, project, terms)
        self.service.quotes.create(request, 600, 100)
        return request.uuid

    def _request(self, number, flavor, project, terms):
        return LeaseRequest(f'{services.NOBODY[:-4]}{next(self._numbers):04x}',
                            project, 'alice',
                            (Nodes(number, flavor, terms.pop('image', None)),),
                            **terms)

    def step(self, engine=None):
        try:
            (engine or self.engine).run_pass()
        except Postponed:
            pass

    def until(self, seconds, each=lambda: None, period=2.0):
        """Run a pass each period, until ``seconds`` after the begin."""
        while self.clock.now < NOW + seconds:
            self.step()
            each()
            self.clock.now += period
            self.nova.run(self.clock.now)
            for host, held in self.nova.load().items():
                if any(amount > most for amount, most in zip(
                        held, HOST, strict=True)):
                    self.overloads.append((self.clock.now - NOW, host, held))

    def state(self, lease):
        return self.store.get(lease).state

    def events(self, lease):
        return [(one.kind, one.text) for one in self.store.events(lease)]

    def kinds(self, lease):
        return [one.kind for one in self.store.events(lease)]

    def plan(self, lease):
        return [(one.begin - NOW, one.end and one.end - NOW, str(one.what),
                 dict(one.hosts)) for _, one in plans.read_plan(
                     self.service.database, lease=lease)]
