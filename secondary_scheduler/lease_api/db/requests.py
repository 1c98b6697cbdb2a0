"""What owners ask for, as the database takes it."""

import dataclasses
import hashlib
import json
import typing

from secondary_scheduler.lease_api.db.models import (
    TERMS,
    Lease,
    Nodes,
    NodeSet,
)
from secondary_scheduler.leases.states import State


@dataclasses.dataclass(frozen=True)
class Request:
    """A lease that somebody asks for; times as in ``models.Asked``.

    ``token`` is the client's: who asks again with the same one gets the
    lease that there is.  ``trust_id`` is a trust of the user.  A lease
    without a duration is one that nobody asks for: see ``models.Lease``.
    """

    uuid: str
    project_id: str
    user_id: str
    nodes: tuple[Nodes, ...]
    duration: int | None
    name: str = ''
    start: int | None = None
    deadline: int | None = None
    immediate: bool = False
    preemptible: bool = True
    max_rate: float | None = None
    token: str | None = None
    trust_id: str | None = None

    @property
    def number(self) -> int:
        """How many nodes it asks for."""
        return sum(one.number for one in self.nodes)

    @property
    def terms(self) -> dict[str, typing.Any]:
        """What is asked for: columns of a lease."""
        return {name: getattr(self, name) for name in ('name', *TERMS)}

    def lease(self, now: int, token: str | None = None) -> Lease:
        """Return the new lease that this asks for; ``token`` as its column.
        """
        return Lease(
            uuid=self.uuid, project_id=self.project_id,
            user_id=self.user_id, **self.terms, state=State.NEW,
            hold=False, wanted_end=False, reason='', price=None,
            next_start=None, created_at=now, updated_at=now, revision=1,
            token=token, fingerprint=self.fingerprint,
            trust_id=self.trust_id, servers=[],
            nodes=[NodeSet(**dataclasses.asdict(one)) for one in self.nodes])

    @property
    def fingerprint(self) -> str:
        """What tells whether another request asks for the same."""
        return digest(json.dumps(
            [self.terms, [dataclasses.astuple(one) for one in self.nodes]],
            sort_keys=True))


def digest(text: str) -> str:
    """Return what a column has room for in place of a long text."""
    return hashlib.sha256(text.encode()).hexdigest()
