# SPDX-License-Identifier: Apache-2.0

"""Policies of this host, from the configuration and the last aggregates."""

from collections.abc import Iterable
import dataclasses
import threading

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.policies import language

LOG = logging.getLogger(__name__)

STATE = 'policies.json'


@dataclasses.dataclass(frozen=True)
class HostPolicies:
    """Policies of this host, without those on several hosts together.

    ``fingerprint`` is that of all configured policies.  ``problem`` is the
    reason why the last configuration could not be read, and the policies are
    then those from before.
    """

    policies: tuple[language.Policy, ...]
    fingerprint: str
    problem: str = ''

    def limit(self, resource: str) -> float | None:
        """Return the lowest threshold on a resource, None without one."""
        return min((policy.threshold for policy in self.policies
                    if policy.resource == resource), default=None)

    def set_point(self, margin: float, resource: str = language.CPU
                  ) -> float | None:
        """Return the set point of a resource, None without a policy on it.

        :param margin: distance to the lowest threshold, in percent of the
            host, like the result.
        """
        limit = self.limit(resource)
        return None if limit is None else limit - margin


class PolicySource:
    """Selects the configured policies of one host; safe for threads.

    The host's aggregates are read from the disk until the control plane
    answers.  While they are unknown, every policy on an aggregate applies.
    ``own`` are policies that the agent adds to the configured ones.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str,
                 store: agent_store.StateStore,
                 own: Iterable[language.Policy] = ()) -> None:
        """Parse the policies.

        :raises PolicyError: if one of them cannot be parsed.
        """
        self._conf = conf
        self._host = host
        self._store = store
        self._own = tuple(own)
        self._lock = threading.Lock()
        known = store.load(STATE).get('aggregates')
        self._aggregates: tuple[str, ...] | None = (
            tuple(str(name) for name in known)
            if isinstance(known, list) else None)
        self._all = language.parse_all(conf.secondary_scheduler.policy)
        self._problem = ''
        self._resolve()

    @property
    def current(self) -> HostPolicies:
        """Policies that apply now."""
        return self._resolved

    def reload(self) -> None:
        """Reload the policies; an invalid one changes none of them."""
        try:
            policies = language.parse_all(
                self._conf.secondary_scheduler.policy)
        except language.PolicyError as exc:
            LOG.critical('Keeping the policies from before and closing this '
                         'host for new secondaries: %s', exc)
            with self._lock:
                self._problem = str(exc)
                self._resolve()
            return
        with self._lock:
            self._all, self._problem = policies, ''
            self._resolve()

    def set_aggregates(self, names: Iterable[str]) -> None:
        """Set the aggregates of this host, as the control plane knows them."""
        with self._lock:
            found = tuple(sorted(str(name) for name in names))
            if found != self._aggregates:
                self._aggregates = found
                self._resolve()

    def _resolve(self) -> None:
        mine = tuple(policy for policy in self._all
                     if not policy.total
                     and policy.applies_to(self._host, self._aggregates))
        mine = tuple(dict.fromkeys(mine + self._own))
        self._resolved = HostPolicies(mine, language.fingerprint(self._all),
                                      self._problem)
        self._store.save(STATE, {
            'aggregates': (None if self._aggregates is None
                           else list(self._aggregates)),
            'policies': [policy.text for policy in mine],
            'fingerprint': self._resolved.fingerprint})
