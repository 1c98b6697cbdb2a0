# SPDX-License-Identifier: Apache-2.0

"""Parameters of our audits: schema, defaults and kinds of decisions."""

from collections.abc import Mapping
from typing import Any

from secondary_scheduler.decisions import base as decisions
from secondary_scheduler.estimation.switch_costs import OBJECTIVES
from secondary_scheduler.watcher.history import SELECT_REQUEST

#: The driver that decides unless an audit names another.
DECISION = 'guided'
#: The driver that can decide for all leases anew.
SWITCH_DECISION = 'context-switch'
#: Options of a context switch unless an audit has others.  A plan locks its
#: hosts until its end, so that a violation there waits; hence the bound.
SWITCH = decisions.SwitchOptions(most_operations=50)
#: Kinds of decisions for each request, in the order in which they are tried.
KINDS: dict[str, tuple[decisions.RequestKind, ...]] = {
    'auto': ('preempt', 'return'), 'preempt': ('preempt',),
    'return': ('return',), 'drain': ('drain',), 'select': ('select',)}


def request_kinds(request: str, decision: str
                  ) -> tuple[decisions.RequestKind, ...]:
    """Return the kinds of decisions for a request, in their order.

    :raises ValueError: if the driver cannot decide for all leases anew.
    """
    if request == SELECT_REQUEST and decision != SWITCH_DECISION:
        raise ValueError(
            f'Parameter request: {SELECT_REQUEST} needs the decision '
            f'{SWITCH_DECISION}, not {decision}')
    if request == 'auto' and decision == SWITCH_DECISION:
        return 'preempt', 'select'
    return KINDS[request]


def switch_options(parameters: Mapping[str, Any]) -> decisions.SwitchOptions:
    """Return the options of a context switch in an audit's parameters."""
    return decisions.SwitchOptions(
        objective=parameters.get('objective', SWITCH.objective),
        minimum_run_s=parameters.get('minimum_run_time',
                                     SWITCH.minimum_run_s),
        displacement_margin=parameters.get('displacement_margin',
                                           SWITCH.displacement_margin),
        headroom=parameters.get('headroom', SWITCH.headroom),
        most_operations=parameters.get('most_operations',
                                       SWITCH.most_operations))


#: JSON schema of an audit's parameters.
SCHEMA: dict[str, Any] = {
    '$schema': 'http://json-schema.org/draft-04/schema#',
    'type': 'object',
    'properties': {
        'request': {
            'description': 'preempt: end the violations of hosts; '
                           'return: bring back what was preempted or '
                           'moved away; drain: clear hosts of '
                           'running secondaries; select: decide for '
                           'all leases anew whether they run and '
                           'where, with the decision '
                           'context-switch; auto: preempt if that '
                           'is needed, else select with the '
                           'decision context-switch, and return '
                           'with any other.',
            'type': 'string',
            'enum': ['auto', 'preempt', 'return', 'drain', 'select'],
            'default': 'auto'},
        'hosts': {
            'description': 'Hosts the request is about; empty means '
                           'all in the scope that need it, and none '
                           'for drain.',
            'type': 'array', 'items': {'type': 'string'},
            'default': []},
        'decision': {
            'description': 'Driver in the entry point namespace '
                           'secondary_scheduler.decisions.',
            'type': 'string', 'default': DECISION},
        'objective': {
            'description': 'Of select: cost to minimise. cost: '
                           'memory copied by each operation and by '
                           'those that it waits for; span: the '
                           'largest operation of each pool, summed '
                           'up; memory: memory copied; time: '
                           'predicted seconds.',
            'type': 'string', 'enum': sorted(OBJECTIVES),
            'default': SWITCH.objective},
        'budget': {
            'description': 'Most work units of a decision; 0: '
                           'option decision_budget.',
            'type': 'integer', 'minimum': 0, 'default': 0},
        'minimum_run_time': {
            'description': 'Of select: seconds for which a lease '
                           'runs before another one displaces it.',
            'type': 'number', 'minimum': 0,
            'default': SWITCH.minimum_run_s},
        'displacement_margin': {
            'description': 'Of select: points of the queue that a lease '
                           'needs above a running one to displace it; of '
                           'priority, or seconds in the order fcfs.',
            'type': 'number', 'minimum': 0,
            'default': SWITCH.displacement_margin},
        'headroom': {
            'description': 'Of select: part of the CPU of a host that must '
                           'be free in addition for a lease to start. Leases '
                           'that run may use it.',
            'type': 'number', 'minimum': 0, 'maximum': 1,
            'default': SWITCH.headroom},
        'most_operations': {
            'description': 'Of select: most operations of a plan; 0: '
                           'any number. The rest waits for the next '
                           'round; a lease is not divided.',
            'type': 'integer', 'minimum': 0,
            'default': SWITCH.most_operations},
        'leases': {
            'description': 'Of a CONTINUOUS audit: run the leases of '
                           'the lease service on its scope.',
            'type': 'boolean', 'default': False},
        'batch': {
            'description': 'Set by the leader: the violations this '
                           'audit handles.',
            'type': ['string', 'null']},
        'switch': {
            'description': 'Set by the leader: the CONTINUOUS audit '
                           'on whose behalf this one runs.',
            'type': ['string', 'null']},
    }}
