# SPDX-License-Identifier: Apache-2.0

"""Plans as JSON documents, for other tools.

A plan document has ``operations`` in the order in which they were decided,
the ``unresolved`` hosts, ``truncated``, and a ``score``.  The score is derived
from the operations, and checked when it is read.  A plan of a context switch
also has its claims::

    "switch": {"objective": "cost", "value": 512, "bound": 512,
               "status": "optimal", "bypassed": [], "selected": 2,
               "bypasses": 0, "conflict": [],
               "states": [{"instance": "vm1", "state": "suspended",
                           "host": "n1"}]}
"""

from collections import Counter

from secondary_scheduler.model.cluster import InstanceState
from secondary_scheduler.plans.operations import (
    KINDS,
    ClaimedState,
    Operation,
    OperationKind,
    Plan,
    SwitchClaim,
)
from secondary_scheduler.reading.fields import Fields, load

SCHEMA = 1

#: Kinds of operation that only an agent carries out.
_AGENTS_KINDS = ('freeze', 'kill')


def check_schema(top: Fields) -> None:
    """Reject a document of another schema.

    :raises DocumentError: if the version is not ``SCHEMA``
    """
    version = top.whole('schema')
    if version != SCHEMA:
        top.wrong('schema', f'the version {SCHEMA}', version)


def read_kind(fields: Fields) -> OperationKind:
    """Read the kind of an operation.

    :raises DocumentError: if it is none of a plan
    """
    kind = fields.choice('kind', (*KINDS, *_AGENTS_KINDS))
    if kind in _AGENTS_KINDS:
        fields.wrong('kind', 'one of ' + ', '.join(KINDS)
                     + ' (an agent freezes and kills by itself, never by a '
                     'plan)', kind)
    return OperationKind(kind)


def read_plan(text: str) -> Plan:
    """Return the plan that a document describes, valid or not.

    Use ``checker`` to check it against a cluster.

    :raises DocumentError: naming the field and the expected value
    """
    top = load(text)
    check_schema(top)
    operations = tuple(map(_operation, top.objects('operations')))
    plan = Plan(operations, tuple(top.texts('unresolved')),
                top.truth('truncated', False),
                _claim(top.object('switch'))
                if 'switch' in top.names else None)
    if 'score' in top.names:
        given = top.take('score', 'an object', lambda value: isinstance(
            value, dict))
        if given != score(plan):
            top.wrong('score', 'what follows from the operations, '
                      f'{score(plan)}, or none', given)
    top.done()
    return plan


def _operation(fields: Fields) -> Operation:
    operation = Operation(
        fields.whole('id'), read_kind(fields), fields.text('instance'),
        fields.text('lease'), fields.text('from', None),
        fields.text('to', None), fields.number('start_s'),
        fields.number('duration_s'), tuple(fields.wholes('after')),
        fields.number('deadline_s', None))
    fields.done()
    return operation


def _claim(fields: Fields) -> SwitchClaim:
    states: dict[str, ClaimedState] = {}
    for one in fields.objects('states'):
        name = one.text('instance')
        if name in states:
            one.wrong('instance', 'a name of its own', name)
        states[name] = ClaimedState(
            InstanceState(one.choice('state', tuple(InstanceState))),
            one.text('host', None))
        one.done()
    claim = SwitchClaim(
        fields.text('objective'), fields.number('value'),
        fields.number('bound', None), fields.text('status'), states,
        tuple(fields.texts('bypassed')), fields.whole('selected', 0),
        fields.whole('bypasses', 0), tuple(fields.texts('conflict')),
        fields.truth('solver_missing', False))
    fields.done()
    return claim


def score(plan: Plan) -> dict[str, float | str | None]:
    """Return the number of operations of each kind, and the makespan.

    ``makespan_s`` is the expected end of the last operation, in seconds.  A
    context switch has its claimed cost, bound and status as well.
    """
    kinds = Counter(str(one.kind) for one in plan.operations)
    claim = plan.switch
    return {**{str(kind): float(kinds[kind]) for kind in KINDS},
            'makespan_s': max((one.start_s + one.duration_s
                               for one in plan.operations), default=0.0),
            **({} if claim is None else {
                'cost': claim.value, 'bound': claim.bound,
                'status': claim.status})}


def write_plan(plan: Plan) -> dict[str, object]:
    """Return a document from which the same plan can be read."""
    return {
        'schema': SCHEMA,
        'operations': [{
            'id': one.id, 'kind': str(one.kind), 'instance': one.instance,
            'lease': one.lease, 'from': one.source, 'to': one.target,
            'start_s': one.start_s, 'duration_s': one.duration_s,
            'after': list(one.after), 'deadline_s': one.deadline_s}
            for one in plan.operations],
        'unresolved': list(plan.unresolved), 'score': score(plan),
        'truncated': plan.truncated,
        **({} if plan.switch is None else {
            'switch': _write_claim(plan.switch)})}


def _write_claim(claim: SwitchClaim) -> dict[str, object]:
    return {
        'objective': claim.objective, 'value': claim.value,
        'bound': claim.bound, 'status': claim.status,
        'bypassed': list(claim.bypassed), 'selected': claim.selected,
        'bypasses': claim.bypasses, 'conflict': list(claim.conflict),
        'solver_missing': claim.solver_missing,
        'states': [{'instance': uuid, 'state': str(one.state),
                    'host': one.host} for uuid, one in claim.states.items()]}
