# SPDX-License-Identifier: Apache-2.0

"""Filter that admits secondaries; primaries pass it unchanged.

In nova.conf::

    [filter_scheduler]
    available_filters = nova.scheduler.filters.all_filters
    available_filters = secondary_scheduler.nova.filters.all_filters
    enabled_filters = ...,SecondaryPolicyFilter
"""

from collections.abc import Iterable
import typing

from nova.scheduler import filters, utils
from oslo_log import log as logging
from stevedore import extension

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.reports import HostReport
from secondary_scheduler.nova import report_books, request, settings
from secondary_scheduler.nova.log_limiter import LIMITED_LOG
from secondary_scheduler.policies import language

LOG = logging.getLogger(__name__)

NAMESPACE = 'secondary_scheduler.filters'


def load_plugins(namespace: str) -> list[type]:
    """Return the classes of a stevedore namespace.

    A class that cannot be loaded is logged and left out, so that it does not
    stop a scheduler from starting.
    """
    def log_failure(manager: object, entry_point: typing.Any,
                 reason: BaseException) -> None:
        LOG.error('Cannot load %(name)s from %(namespace)s: %(reason)s',
                  {'name': entry_point.name, 'namespace': namespace,
                   'reason': reason})

    found = extension.ExtensionManager(
        namespace, on_load_failure_callback=log_failure)
    return [one.plugin for one in found]


def all_filters() -> list[type]:
    """Return the filters of our namespace, for ``available_filters``."""
    return load_plugins(NAMESPACE)


class SecondaryPolicyFilter(filters.BaseHostFilter):
    """Passes a host for a secondary if the agent's report admits it.

    A host is rejected (for secondaries only)

    * if the request is ill-formed, or its allocation candidate has resources
      of primaries,
    * if there is no policy, if one cannot be parsed, or if the host's agent
      has others,
    * if the host's report is missing, stale, closed, or has a violation,
    * if an aggregate of the host runs the largest number of secondaries that
      a policy allows,
    * if a new server would take resources held for leases,
    * if a new server would be slowed down too much by others,
    * if an agent of such an aggregate has not reported,
    * if a new server of a lease is scheduled to another host.

    A rebuild passes.  A request whose flavor cannot be read counts as one for
    a primary.

    An exception of ours rejects all hosts for a secondary, and passes all
    hosts for a primary.
    """

    RUN_ON_REBUILD = False

    def filter_all(self, filter_obj_list: Iterable[typing.Any],
                   spec_obj: typing.Any) -> Iterable[typing.Any]:
        """Return the hosts that pass; for a primary the given list itself."""
        if not _concerns_us(spec_obj):
            return filter_obj_list
        try:
            if utils.request_is_rebuild(spec_obj):
                return filter_obj_list
            wrong = request.problems(spec_obj)
            if wrong:
                LOG.info('No host for secondary instance %(uuid)s: %(why)s',
                         {'uuid': spec_obj.instance_uuid,
                          'why': '; '.join(wrong)})
                return []
            admission = _Admission(spec_obj)
            only = request.wanted_host(spec_obj)
            return [host for host in filter_obj_list
                    if only in (None, host.host) and admission.admits(host)]
        except Exception:
            LIMITED_LOG.exception(
                'filter', 'A secondary instance gets no host.')
            return []

    def host_passes(self, host_state: typing.Any,
                    filter_properties: typing.Any) -> bool:
        """Return whether one host passes; never raises."""
        if not _concerns_us(filter_properties):
            return True
        return bool(self.filter_all([host_state], filter_properties))


def _concerns_us(spec: typing.Any) -> bool:
    try:
        return request.is_secondary(spec)
    except Exception:
        # A request that cannot be read counts as one for a primary.
        LIMITED_LOG.exception(
            'spec', 'A request with an unreadable flavor is not filtered.')
        return False


class _Admission:
    """Admission by policies, reports and holds, for one request."""

    def __init__(self, spec: typing.Any) -> None:
        self._spec = spec
        policies = settings.policies()
        self._fingerprint = (language.fingerprint(policies) if policies
                             else None)
        self._totals = [policy for policy in policies if policy.total]
        self._book = report_books.book()
        self._holds = report_books.holds()
        self._full: dict[str, bool] = {}

    def admits(self, host_state: typing.Any) -> bool:
        """Return whether a host takes one more secondary."""
        reason = self._refusal(host_state)
        if reason:
            LOG.debug('Host %(host)s takes no secondary: %(reason)s',
                      {'host': host_state.host, 'reason': reason})
        return reason is None

    def _refusal(self, host_state: typing.Any) -> str | None:
        if self._fingerprint is None:
            return 'there is no policy, or one cannot be read'
        if request.takes_primary_resources(host_state):
            return 'it would take resources of primaries'
        report = self._book.get(host_state.host)
        if report is None:
            return 'there is no fresh report of its agent'
        if report.policies_hash != self._fingerprint:
            return 'its agent has other policies'
        if not report.admission:
            return report.reason or 'its agent has closed it'
        if report.violated:
            return f'it violates {report.violated[0].policy}'
        if self._is_held(host_state.host):
            return 'it is held for leases'
        if self._is_too_slow(report):
            return 'an instance of this class would be slowed down too much'
        return next((f'no more are allowed by {policy.text}'
                     for policy in self._totals
                     if self._is_full(policy, host_state)), None)

    def _is_held(self, host: str) -> bool:
        """Return whether a new server would take resources held for leases.

        A move is exempt: it relieves a primary.
        """
        hold = self._holds.get(host)
        return hold is not None and not request.is_move(
            self._spec) and not hold.admits(
                request.claims_of(self._spec.flavor),
                request.hint(self._spec, vocabulary.LEASE_HINT))

    def _is_too_slow(self, report: HostReport) -> bool:
        """Return whether a new server would exceed the limit of slow-downs.

        A move is exempt: it relieves a primary.  So is a server for which the
        host was chosen already, as those of leases are: the limit protects
        only the server itself.  An unknown slow-down does not exceed it.
        """
        limit = settings.CONF.secondary_scheduler.highest_predicted_slowdown
        if (limit is None or request.is_move(self._spec)
                or request.wanted_host(self._spec) is not None):
            return False
        name = request.workload_class(self._spec)
        arrival = report.arrivals.get(name) if name else None
        return arrival is not None and arrival.slowdown > limit

    def _is_full(self, policy: language.Policy,
                 host_state: typing.Any) -> bool:
        hosts = {one.name: one.hosts for one in host_state.aggregates}
        if not policy.applies_to(host_state.host, hosts):
            return False
        if policy.text not in self._full:
            together = hosts.get(policy.scope_name, [host_state.host])
            running = self._book.running(together)
            # An instance that runs on these hosts already does not raise the
            # number.  A move relieves a primary, so it does not wait until
            # every host has reported.
            self._full[policy.text] = (
                self._spec.instance_uuid not in running
                and (policy.threshold <= len(running)
                     or not (request.is_move(self._spec)
                             or self._book.knows(together))))
        return self._full[policy.text]
