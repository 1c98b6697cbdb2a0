# SPDX-License-Identifier: Apache-2.0

"""JSON schemas of records for operators: capacity, operations, accounting.

All values of hosts and operations were observed; null stands for unknown.
"""

from secondary_scheduler.leases.api.node_sets import line, nullable
from secondary_scheduler.leases.api.schema_parts import (
    MOMENT,
    UUID,
    Schema,
    make_answer,
    make_list,
    make_object,
    ref,
)
from secondary_scheduler.model.reports import PolicyState

_TEXT: Schema = {'type': 'string'}
_NUMBER: Schema = {'type': 'number'}
_DAY: Schema = {
    'type': 'string', 'pattern': r'^20[0-9]{2}-[0-9]{2}-[0-9]{2}$',
    'format': 'date'}
_LIMIT: Schema = {'type': 'integer', 'minimum': 1, 'maximum': 2 ** 31 - 1,
                  'description': 'Largest number of items.'}
_LINKS = make_list(make_answer({'rel': _TEXT, 'href': _TEXT}))
_PERCENT: Schema = {'type': ['number', 'null'], 'description': (
    'Percent of the host; null: unknown.')}

CAPACITY_QUERY = make_object({
    'host': line('Only this host.', 1),
    'limit': _LIMIT,
    'marker': line('Begin after the host of this name.', 1)})
OPERATIONS_QUERY = make_object({
    'host': line('Only plans with an operation from or to this host.', 1),
    'server': {**UUID, 'description': (
        'Only plans with an operation on this server.')},
    'request': line('Only plans of this request, such as preempt.', 1, 32),
    'state': make_list(line('A state of Watcher.', 1, 20), description=(
        'Only plans in one of these states.')),
    'since': {**MOMENT, 'description': 'Leave out plans made earlier.'},
    'until': {**MOMENT, 'description': 'Leave out plans made then or later.'},
    'limit': {**_LIMIT, 'default': 20},
    'marker': {**UUID, 'description': 'Begin after this plan.'}})
ACCOUNTING_QUERY = make_object({
    'begin': {**_DAY, 'description': (
        'First day (UTC); default: the first of the present month.')},
    'end': {**_DAY, 'description': (
        'Day after the last one (UTC); default: tomorrow.')},
    'all_projects': {
        'type': 'boolean', 'default': False,
        'description': 'Accounts of all projects; for operators.'}})

_USE = make_answer({
    'resource': _TEXT, 'unit': _TEXT,
    'primary': _PERCENT, 'secondary': _PERCENT,
    'limit': {'type': ['number', 'null'], 'description': (
        'Lowest threshold of a policy on it, in percent of the host; null: '
        'no policy.')}})
_POLICY = make_answer({
    'policy': {'type': 'string', 'description': 'The policy as configured.'},
    'resource': _TEXT,
    'unit': {'type': 'string', 'description': (
        'Unit of usage and threshold; empty if a probe defines it.')},
    'usage': {'type': ['number', 'null'], 'description': 'null: unknown.'},
    'threshold': _NUMBER,
    'time_limit': {'type': 'integer', 'description': (
        'Seconds for which it may fail.')},
    'failed_checks': {'type': ['integer', 'null'], 'description': (
        'Failed checks in a row, one a second; null: unknown.')},
    'state': {'type': 'string', 'enum': [str(one) for one in PolicyState]}})
_INVENTORY = make_answer({
    'resource_class': _TEXT, 'unit': _TEXT,
    'used': {'type': 'integer', 'description': (
        'Claimed in Placement, also by suspended secondaries.')},
    'allowed': {'type': 'integer', 'description': (
        'What secondaries that run may claim now.')},
    'total': {'type': 'integer', 'description': (
        'What secondaries that run may ever claim.')}})
_SECONDARY = make_answer({
    'server_id': UUID, 'name': nullable(_TEXT),
    'project_id': nullable(_TEXT), 'lease_id': nullable(_TEXT),
    'priority': {'type': 'integer'},
    'cpu': _PERCENT, 'limit': _PERCENT,
    'at_floor': nullable({'type': 'boolean'}),
    'paused': nullable({'type': 'boolean'}),
    'problem': {'type': 'string', 'description': (
        'Reason if the host cannot limit it.')}})
#: Fields of a host that the decision engine observes.
CAPACITY: Schema = {
    'aggregates': make_list(_TEXT),
    'availability_zone': _TEXT,
    'known': {'type': 'boolean', 'description': (
        'Whether there is a fresh report of the agent. Otherwise all use is '
        'null and admission unknown.')},
    'admission': {'type': 'string', 'enum': ['open', 'closed', 'unknown']},
    'reason': {'type': 'string', 'description': (
        'Reason for which it is not open.')},
    'cpus': {'type': ['number', 'null']},
    'memory_mb': {'type': ['integer', 'null'], 'description': 'MiB.'},
    'use': {**make_list(_USE), 'description': (
        'Measured resources: cpu, and those that policies are on.')},
    'policies': make_list(_POLICY),
    'inventory': make_list(_INVENTORY),
    'secondaries': {**make_list(_SECONDARY), 'description': (
        'Secondaries that run on the host.')},
    'at_floor': {'type': ['integer', 'null'], 'description': (
        'Number of secondaries at the floor.')}}
_HOST = make_answer({
    'host': _TEXT,
    'observed_at': {**MOMENT, 'description': (
        'Time of the observation by a decision engine.')},
    'reported_at': {**nullable(MOMENT), 'description': (
        'Time of the last report of the agent, however old; null: never.')},
    **CAPACITY})

#: Fields of an operation.
OPERATION: Schema = {
    'id': {**UUID, 'description': (
        'Id of the action; actions on several members of a lease have one '
        'operation for each.')},
    'kind': {'type': 'string', 'description': (
        'Such as migrate, suspend, resume, boot or delete.')},
    'server_id': nullable(UUID), 'server_name': nullable(_TEXT),
    'lease_id': nullable(_TEXT),
    'source': nullable(_TEXT), 'target': nullable(_TEXT),
    'state': {'type': 'string', 'description': 'State of the action.'},
    'began_at': {**nullable(MOMENT), 'description': (
        'null: not begun, or not observed.')},
    'ended_at': nullable(MOMENT),
    'seconds': {'type': ['number', 'null'], 'description': (
        'Measured duration of an operation that has succeeded.')},
    'predicted': {'type': ['number', 'null'], 'description': (
        'Predicted duration in seconds; null: unknown.')},
    'reason': {'type': 'string', 'description': (
        'Reason for which it failed or was skipped.')}}
#: Fields of an action plan, without its operations.
PLAN: Schema = {
    'id': UUID, 'audit_id': UUID, 'audit_type': _TEXT,
    'request': {'type': 'string', 'description': (
        'Request of the audit, such as preempt, return, drain or select; '
        'leases: ordered by the lease engine.')},
    'state': {'type': 'string', 'description': 'State of the plan.'},
    'reason': {'type': 'string', 'description': 'Status message of Watcher.'},
    'created_at': MOMENT, 'updated_at': nullable(MOMENT),
    'predicted': {'type': ['number', 'null'], 'description': (
        'Predicted seconds until the last operation has ended.')},
    'indicators': make_list(make_answer({
        'name': _TEXT, 'value': _NUMBER, 'unit': _TEXT}))}

_ACCOUNT = make_answer({
    'project_id': _TEXT,
    'leases': {'type': 'integer', 'description': (
        'Number of leases that were served.')},
    'served': {'type': 'integer', 'description': (
        'Seconds in which all servers of a lease ran, summed up. Negative if '
        'earlier work was lost.')},
    'node_seconds': {'type': 'integer', 'description': (
        'The same, times the number of nodes.')},
    'charge': {'type': 'number', 'description': (
        'Charge of the served time. Negative if a lease has failed whose '
        'charge was of earlier days.')}})

#: Schemas of responses by name.
COMPONENTS: dict[str, Schema] = {
    'Host': _HOST,
    'CapacityAnswer': make_answer({
        'hosts': make_list(ref('Host')), 'hosts_links': _LINKS,
        'engine': ref('Engine')}),
    'Plan': make_answer({**PLAN, 'operations': make_list(
        make_answer(OPERATION))}),
    'OperationsAnswer': make_answer({
        'plans': make_list(ref('Plan')), 'plans_links': _LINKS,
        'engine': ref('Engine')}),
    'AccountingAnswer': make_answer({
        'begin': _DAY, 'end': _DAY,
        'projects': make_list(_ACCOUNT),
        'since': {**nullable(_DAY), 'description': (
            'First day with an account; null: there is none.')},
        'engine': ref('Engine')}),
}
