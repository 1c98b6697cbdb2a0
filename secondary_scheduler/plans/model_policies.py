# SPDX-License-Identifier: Apache-2.0

"""Policies of model documents, with their counters."""

from collections.abc import Iterator, Sequence
import operator

from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    InstanceState,
    Item,
)
from secondary_scheduler.policies import language, triggers
from secondary_scheduler.reading.fields import DocumentError, Fields

#: Failed checks from which a policy is violated, by time limit (Boettger 2012,
#: Table 6.3).
SENSITIVITY = {25: 7, 20: 6, 15: 5, 10: 4, 8: 3, 6: 2}

_RUNNING = (InstanceState.ACTIVE, InstanceState.BUSY, InstanceState.OTHER)


def read_policies(top: Fields) -> Iterator[language.Policy]:
    """Yield the policies of a document."""
    for number, text in enumerate(top.texts('policies')):
        yield read_policy(text, f'policies[{number}]')


def read_policy(text: str, path: str) -> language.Policy:
    """Read a policy.

    :param path: path of the field, for messages
    :raises DocumentError: with the column and an example
    """
    try:
        return language.parse(text, language.MODELLED, language.MODELLED)
    except language.PolicyError as exc:
        raise DocumentError(
            f'{path}: column {exc.column}: {exc.message}; expected something '
            f'like "{exc.example}"') from None


def total_item(policy: language.Policy, hosts: Sequence[Host]
               ) -> tuple[Item, Sequence[language.Policy]]:
    """Return the item of a policy on several hosts together.

    Its use is the mean over the hosts, weighted by their sizes.  It is unknown
    if that of any host is.
    """
    resource = policy.resource
    uses = [host.primary_use(resource) for host in hosts]
    known = [use for use in uses if use is not None]
    weights = [host.capacity(resource) or 0.0 for host in hosts]
    usage = {}
    if len(known) == len(uses) and any(weights):
        usage[resource] = (sum(map(operator.mul, known, weights))
                           / sum(weights))
    return Item(
        policy.text, tuple(sorted(host.name for host in hosts)), (),
        1 / max(1, len(hosts)), usage), (policy,)


def read_policy_with_counters(fields: Fields) -> HostPolicy:
    """Read a policy with its counters."""
    policy = read_policy(fields.text('text'), fields.at('text'))
    sensitivity = fields.whole('sensitivity', _sensitivity(policy), least=1)
    failed = fields.whole('failed', 0)
    violated = fields.truth('violated', failed >= sensitivity)
    fields.done()
    return HostPolicy(policy.text, policy.resource, policy.threshold,
                      policy.timelimit, failed, violated, sensitivity)


def derive_counters(policy: language.Policy | HostPolicy, cluster: Cluster,
                    name: str) -> HostPolicy:
    """Return a policy of a place with counters derived from the model.

    No policy fails by unknown use, since nothing was measured.
    """
    if isinstance(policy, HostPolicy):
        return policy   # it has its counters
    here = [one for one in cluster.residents(name) if one.state in _RUNNING]
    if policy.static:
        fails = sum(one.holds(policy.resource)
                    for one in here) > policy.threshold
    else:
        primary = cluster.at(name).primary_use(policy.resource)
        fails = bool(here) and primary is not None and primary + sum(
            cluster.percent(name, policy.resource, one) or 0.0
            for one in here) > policy.threshold
    sensitivity = _sensitivity(policy)
    return HostPolicy(policy.text, policy.resource, policy.threshold,
                      policy.timelimit, sensitivity if fails else 0, fails,
                      sensitivity)


def _sensitivity(policy: language.Policy) -> int:
    return 1 if policy.static else triggers.sensitivity_for(
        policy.timelimit, SENSITIVITY)


def write_policies(policies: Sequence[HostPolicy]
                   ) -> list[dict[str, object]]:
    """Return policies with their counters as JSON."""
    return [{'text': policy.text, 'failed': policy.failed,
             'violated': policy.violated, 'sensitivity': policy.sensitivity}
            for policy in policies]
