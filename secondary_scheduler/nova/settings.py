# SPDX-License-Identifier: Apache-2.0

"""Nova's configuration, with our options registered."""

from nova import conf as nova_conf

from secondary_scheduler.conf import nova as nova_options
from secondary_scheduler.conf import policy
from secondary_scheduler.nova.log_limiter import LIMITED_LOG
from secondary_scheduler.policies import language

CONF = nova_conf.CONF
policy.register_opts(CONF)
nova_options.register_opts(CONF)

_Parsed = tuple[tuple[str, ...], tuple[language.Policy, ...]]

#: Last value of the option, and the parsed policies.  Not an attribute of a
#: filter: a worker inherits filters from its parent, also after a reload.
_last: _Parsed | None = None


def policies() -> tuple[language.Policy, ...]:
    """Return the policies of the present configuration.

    :returns: an empty tuple if there is no policy, or one cannot be parsed;
        then no host takes secondaries.
    """
    global _last
    texts = tuple(CONF.secondary_scheduler.policy)
    if _last is None or _last[0] != texts:
        _last = (texts, _read(texts))
    elif texts and not _last[1]:
        _read(texts)    # logs the error again, once a minute
    return _last[1]


def _read(texts: tuple[str, ...]) -> tuple[language.Policy, ...]:
    try:
        return language.parse_all(texts)
    except ValueError as exc:
        LIMITED_LOG.critical(
            'policy', f'No host takes secondary instances: {exc}')
        return ()
