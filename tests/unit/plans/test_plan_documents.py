# SPDX-License-Identifier: Apache-2.0

"""Plans as JSON documents."""

import json
import unittest

from hypothesis import given

from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.model.cluster import InstanceState
from secondary_scheduler.plans import model_documents, plan_documents
from secondary_scheduler.plans.operations import (
    KINDS,
    ClaimedState,
    OperationKind,
    Plan,
    SwitchClaim,
)
from tests.unit.decisions import worked_example, worlds
from tests.unit.plans.documents import WrongDocument

PLAN = {
    'schema': 1, 'operations': [
        {'id': 1, 'kind': 'suspend', 'instance': 'v1', 'lease': 'l',
         'from': 'n1', 'start_s': 0, 'duration_s': 3, 'deadline_s': 4},
        {'id': 2, 'kind': 'migrate', 'instance': 'v2', 'lease': 'm',
         'from': 'n1', 'to': 'n2', 'start_s': 3, 'duration_s': 5,
         'after': [1]}]}

SWITCH = {
    'objective': 'span', 'value': 512, 'bound': 256.5, 'status': 'within',
    'states': [{'instance': 'v1', 'state': 'suspended', 'host': 'n1'},
               {'instance': 'v2', 'state': 'active', 'host': 'n2'},
               {'instance': 'v3', 'state': 'shelved', 'host': None}],
    'bypassed': ['l'], 'selected': 2, 'bypasses': 1, 'conflict': ['host n1'],
    'solver_missing': True}


def plan(text):
    return plan_documents.read_plan(json.dumps(text))


class TestPlan(unittest.TestCase):

    def test_all_fields_are_read(self):
        first, second = plan(PLAN).operations
        self.assertEqual((OperationKind.SUSPEND, 'n1', None, 4, ()),
                         (first.kind, first.source, first.target,
                          first.deadline_s, first.after))
        self.assertEqual(('n2', None, (1,)), (
            second.target, second.deadline_s, second.after))
        self.assertEqual(Plan(unresolved=('h',), truncated=True), plan(
            {'schema': 1, 'operations': [], 'unresolved': ['h'],
             'truncated': True}))

    def test_score_counts_operations(self):
        score = plan_documents.score(plan(PLAN))
        self.assertEqual((1, 1, 0, 8), tuple(
            score[name] for name in ('suspend', 'migrate', 'stop',
                                     'makespan_s')))

    def test_claims_of_a_switch_are_read_and_written(self):
        made = plan({**PLAN, 'switch': SWITCH})
        self.assertEqual(SwitchClaim(
            'span', 512, 256.5, 'within', {
                'v1': ClaimedState(InstanceState.SUSPENDED, 'n1'),
                'v2': ClaimedState(InstanceState.ACTIVE, 'n2'),
                'v3': ClaimedState(InstanceState.SHELVED, None)},
            ('l',), 2, 1, ('host n1',), True), made.switch)
        written = plan_documents.write_plan(made)
        self.assertEqual(SWITCH, written['switch'])
        self.assertEqual((512, 256.5, 'within'), tuple(
            written['score'][name] for name in ('cost', 'bound', 'status')))
        self.assertEqual(made, plan(written))

    def test_omitted_claims_have_defaults(self):
        made = plan({**PLAN, 'switch': {
            'objective': 'cost', 'value': 0, 'status': 'feasible',
            'states': []}})
        self.assertEqual(SwitchClaim('cost', 0, None, 'feasible', {}),
                         made.switch)
        self.assertEqual(made, plan(plan_documents.write_plan(made)))

    def test_plan_without_claims_has_no_further_fields(self):
        written = plan_documents.write_plan(plan(PLAN))
        self.assertEqual(
            {'schema', 'operations', 'unresolved', 'score', 'truncated'},
            written.keys())
        self.assertEqual({*KINDS, 'makespan_s'}, written['score'].keys())

    @given(worlds.clusters())
    def test_written_plan_is_read_back(self, world):
        made = GuidedDecision().decide(
            world, DecisionRequest('preempt'), Budget(300)
        )
        self.assertEqual(made, plan(plan_documents.write_plan(made)))

    def test_document_of_a_model_yields_the_same_plan(self):
        world = worked_example.cluster()
        text = json.dumps(model_documents.write_model(world))
        made = worked_example.decision().decide(
            model_documents.read_model(text), DecisionRequest('preempt'),
            Budget())
        self.assertEqual(made, worked_example.decision().decide(
            world, DecisionRequest('preempt'), Budget()))


class TestWrong(WrongDocument):
    """Errors name the field and the expected value."""

    def test_each_fault_is_named(self):
        one = ('operations', 1)
        for path, value, *words in (
                (('schema',), True, 'schema'),
                (('operations',), None, 'operations: is missing'),
                ((*one, 'id'), '2', 'operations[1].id: expected a whole'),
                ((*one, 'kind'), 'move', 'operations[1].kind', 'unshelve'),
                ((*one, 'kind'), 'kill', 'operations[1].kind', 'an agent'),
                ((*one, 'kind'), 'freeze', 'never by a plan'),
                ((*one, 'after'), ['1'], 'operations[1].after[0]'),
                ((*one, 'after'), 1, 'operations[1].after: expected a list'),
                ((*one, 'start_s'), -1, 'operations[1].start_s'),
                ((*one, 'duration_s'), None, 'duration_s: is missing'),
                ((*one, 'source'), 'h', 'operations[1].source: is not',
                 'from'),
                (('unresolved',), ['h', 3], 'unresolved[1]'),
                (('truncated',), 'no', 'true or false'),
                (('score',), {'migrate': 7}, 'score: expected what follows'),
                (('score',), 3, 'score: expected an object'),
                (('switch',), [], 'switch: expected an object'),
                (('cost',), 3, 'cost: is not known')):
            self.rejects(plan, PLAN, path, value, *words)

    def test_each_fault_of_claims_is_named(self):
        whole = {**PLAN, 'switch': SWITCH}
        one = ('switch', 'states', 1)
        for path, value, *words in (
                (('switch', 'objective'), None, 'switch.objective: is miss'),
                (('switch', 'value'), -1, 'switch.value: expected a number'),
                (('switch', 'bound'), 'low', 'switch.bound: expected'),
                (('switch', 'status'), 3, 'switch.status: expected a text'),
                (('switch', 'states'), None, 'switch.states: is missing'),
                (('switch', 'bypassed'), [1], 'switch.bypassed[0]'),
                (('switch', 'selected'), 1.5, 'switch.selected', 'whole'),
                (('switch', 'colour'), 1, 'switch.colour: is not known'),
                ((*one, 'instance'), 'v1', 'switch.states[1].instance',
                 'a name of its own'),
                ((*one, 'state'), 'up', 'switch.states[1].state', 'active'),
                ((*one, 'to'), 'h', 'switch.states[1].to: is not known',
                 'host'),
                (('score',), {'cost': 3}, 'score: expected what follows')):
            self.rejects(plan, whole, path, value, *words)

    def test_other_texts_are_rejected(self):
        self.rejects_other_texts(plan_documents.read_plan)
