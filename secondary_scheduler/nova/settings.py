"""Nova's configuration with our options in it."""

from nova import conf as nova_conf

from secondary_scheduler.conf import nova as nova_options
from secondary_scheduler.conf import policy
from secondary_scheduler.nova.guard import COMPLAINTS
from secondary_scheduler.policies import language

CONF = nova_conf.CONF
policy.register_opts(CONF)
nova_options.register_opts(CONF)

_Parsed = tuple[tuple[str, ...], str | None]

#: The last value of the option and what came of it; not an attribute of a
#: filter, since a worker inherits those from before a reload (risks.md F9).
_last: _Parsed | None = None


def policies_fingerprint() -> str | None:
    """Return the fingerprint of the policies that are configured now.

    :returns: None if there is no policy or one cannot be read: then no host
        takes secondaries.
    """
    global _last
    texts = tuple(CONF.secondary_scheduler.policy)
    if _last is None or _last[0] != texts:
        _last = (texts, _read(texts))
    elif _last[1] is None and texts:
        _read(texts)    # repeats the complaint, once a minute
    return _last[1]


def _read(texts: tuple[str, ...]) -> str | None:
    try:
        policies = language.parse_all(texts)
    except ValueError as exc:
        COMPLAINTS.critical(
            'policy', f'No host takes secondary instances: {exc}')
        return None
    return language.fingerprint(policies) if policies else None
