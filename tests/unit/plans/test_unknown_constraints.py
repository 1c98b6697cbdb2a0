# SPDX-License-Identifier: Apache-2.0

"""A kind of constraint that a consumer does not know is an error there."""

import dataclasses
from unittest import TestCase

from secondary_scheduler.decisions import sample_rules, switch_rules
from secondary_scheduler.decisions.optimiser import problem, rules
from secondary_scheduler.leases.engine import host_rules
from secondary_scheduler.leases.engine.values import CloudState
from secondary_scheduler.model import cluster, configuration
from secondary_scheduler.model.constraints import (
    Constraint,
    PlacementRules,
    Spread,
    UnknownConstraintError,
)
from secondary_scheduler.plans import (
    constraint_checks,
    constraint_rules,
    model_constraints,
)


@dataclasses.dataclass(frozen=True)
class Invented(Constraint):
    """Names hosts only, as a quarantine does."""

    kind = 'invented'
    hosts: frozenset[str]

    @property
    def named(self):
        return frozenset()


@dataclasses.dataclass(frozen=True)
class Stricter(Spread):
    """A subclass of a known kind is another kind, too."""

    kind = 'stricter'


INVENTED = Invented(frozenset({'n1'})), Stricter(frozenset({'a'}))


class UnknownConstraintsTest(TestCase):

    def consumers(self, one):
        """Return functions that take a constraint in."""
        there = cluster.Cluster({}, {}, constraints=(one,))
        members = configuration.Configuration(
            ('cpu',), {}, {}, constraints=(one,))
        return (
            lambda: PlacementRules([one]),
            lambda: there.rules,
            lambda: constraint_checks.ConstraintChecks(there, {}, {}),
            lambda: model_constraints.write_constraints([one]),
            lambda: problem.list_rooted(members),
            lambda: sample_rules.SampleRules(members),
            lambda: switch_rules.SwitchRules(members),
            lambda: rules.TargetRules(problem.build_problem(
                members, members)),
            lambda: host_rules.HostRules([one], CloudState(), ()))

    def test_each_consumer_refuses_it(self):
        for one in INVENTED:
            for consume in self.consumers(one):
                with self.assertRaises(UnknownConstraintError):
                    consume()

    def test_order_of_a_plan_is_not_checked_without_it(self):
        for one in INVENTED[:1]:
            orders = constraint_checks.ConstraintOrders(
                cluster.Cluster({}, {}, constraints=(one,)), None, {}, {})
            with self.assertRaises(UnknownConstraintError):
                list(orders.conflicts())

    def test_rule_of_an_operator_becomes_no_other_constraint(self):
        resolver = constraint_rules.RuleResolver(constraint_rules.KnownNames(
            {'a'}, {}, {'n1'}))
        rule = constraint_rules.ConstraintRule(
            1, 'invented', constraint_rules.NamedMembers(('a',)), ('n1',))
        with self.assertRaises(UnknownConstraintError):
            resolver.resolve([rule])
