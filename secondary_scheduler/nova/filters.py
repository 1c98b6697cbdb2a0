"""The filter that admits secondaries, and never concerns a primary.

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
from secondary_scheduler.nova import report_books, request, settings
from secondary_scheduler.nova.log_limiter import COMPLAINTS
from secondary_scheduler.policies import language

LOG = logging.getLogger(__name__)

NAMESPACE = 'secondary_scheduler.filters'


def load_plugins(namespace: str) -> list[type]:
    """Return the classes of a stevedore namespace; one that fails is left
    out and logged, so that it keeps no scheduler from starting.
    """
    def complain(manager: object, entry_point: typing.Any,
                 reason: BaseException) -> None:
        LOG.error('Cannot load %(name)s from %(namespace)s: %(reason)s',
                  {'name': entry_point.name, 'namespace': namespace,
                   'reason': reason})

    found = extension.ExtensionManager(
        namespace, on_load_failure_callback=complain)
    return [one.plugin for one in found]


def all_filters() -> list[type]:
    """Return the filters that stevedore knows, for ``available_filters``."""
    return load_plugins(NAMESPACE)


class SecondaryPolicyFilter(filters.BaseHostFilter):
    """Passes a host for a secondary if its agent says it has room.

    Closed (for secondaries only) when the request is ill-formed, when the
    policies cannot be read or the host's agent has others, when the host's
    report is missing, stale, closed or tells a violation, and when as many
    run in one of its aggregates as a policy allows there together.  A new
    server of a lease is for one host, which its schedule has chosen, and
    others get no room there that leases are about to take.  Any failure of
    ours closes it for secondaries and opens it for primaries.
    """

    RUN_ON_REBUILD = False

    def filter_all(self, filter_obj_list: Iterable[typing.Any],
                   spec_obj: typing.Any) -> Iterable[typing.Any]:
        """Return the hosts that pass; for a primary all, untouched."""
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
            COMPLAINTS.exception('filter', 'A secondary instance gets no '
                                 'host.')
            return []

    def host_passes(self, host_state: typing.Any,
                    filter_properties: typing.Any) -> bool:
        """Tell whether one host passes; never raises."""
        if not _concerns_us(filter_properties):
            return True
        return bool(self.filter_all([host_state], filter_properties))


def _concerns_us(spec: typing.Any) -> bool:
    try:
        return request.is_secondary(spec)
    except Exception:
        # What cannot be read is a primary.
        COMPLAINTS.exception('spec', 'A request whose flavor cannot be read '
                             'is left alone.')
        return False


class _Admission:
    """What policies and reports say while one request is looked at."""

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
        """Tell whether a host takes one more secondary."""
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
        return next((f'no more are allowed by {policy.text}'
                     for policy in self._totals
                     if self._is_full(policy, host_state)), None)

    def _is_held(self, host: str) -> bool:
        """Tell whether leases are to have what a new server would take.

        Who moves does so to help a primary.
        """
        hold = self._holds.get(host)
        return hold is not None and not request.moves(
            self._spec) and not hold.admits(
                request.needs(self._spec.flavor),
                request.hint(self._spec, vocabulary.LEASE_HINT))

    def _is_full(self, policy: language.Policy,
                 host_state: typing.Any) -> bool:
        hosts = {one.name: one.hosts for one in host_state.aggregates}
        if not policy.applies_to(host_state.host, hosts):
            return False
        if policy.text not in self._full:
            together = hosts.get(policy.scope_name, [host_state.host])
            running = self._book.running(together)
            # One that moves among these hosts is no more than there are, and
            # helps a primary: it need not wait until all have been heard.
            self._full[policy.text] = (
                self._spec.instance_uuid not in running
                and (policy.threshold <= len(running)
                     or not (request.moves(self._spec)
                             or self._book.knows(together))))
        return self._full[policy.text]
