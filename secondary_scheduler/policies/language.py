# SPDX-License-Identifier: Apache-2.0

"""The policy language: one line of configuration is one policy.

::

    policy   = resource "<=" limit [ "for" seconds "s" ]
               [ "on" scope | "in" scope ]
    resource = name                  (in the table of ``model.resources``)
             | "probe:" name         (a signal from the operator)
    limit    = number "%"            (measured ones: percent of the host)
             | whole number          (static ones, in their unit)
             | number                (probes: in the probe's own unit)
    scope    = "aggregate:" name | "host:" name

With ``on`` a scope the limit applies to each of its hosts, with ``in`` a
scope to all of them together: counts are added up, and so are amounts, in
percent of all hosts.

A policy is ``P = (S, CI, n)`` of Boettger 2012, section 4.3.5: the statement
``resource <= limit``, the hosts ``scope``, and the time limit ``n`` in checks
of one second each.  A reader names the resources that it can enforce, and
the resources that it can enforce on several hosts together.  A policy that
the reader cannot enforce is rejected.
"""

from collections.abc import Collection, Iterable, Sequence
import dataclasses
import decimal
import hashlib
import re
import typing

from secondary_scheduler.model import resources

CPU = 'cpu'
MEMORY = 'mem'
SLOTS = 'slots'
CORES = 'cores'
PROBE = 'probe'

STATIC = resources.STATIC
#: Example policies, by resource.
EXAMPLES = {one.name: one.example for one in resources.TABLE if one.example}
#: Resources on which agents enforce policies.
ENFORCED = tuple(EXAMPLES)
#: Resources of which each secondary has a part.
USED = tuple(name for name in ENFORCED
             if resources.BY_NAME[name].attributable)
#: Signals of harm to the primary.  The part of a secondary in one is unknown,
#: so the value after its departure cannot be predicted.
SIGNALS = tuple(name for name in ENFORCED
                if not resources.BY_NAME[name].attributable)
#: Resources that Watcher counts on several hosts together.
COUNTED = tuple(name for name in ENFORCED if resources.BY_NAME[name].counted)
#: Resources on which a model of a cluster can have policies.
MODELLED = tuple(name for name in ENFORCED
                 if resources.BY_NAME[name].modelled)

#: Valid names of probes.
PROBE_NAME = r'[A-Za-z]\w{0,63}'
#: Bound on numbers, as in reports.
_LARGEST = 1e15

MIN_TIMELIMIT = 3
MAX_TIMELIMIT = 3600
#: Seconds to move or suspend surplus secondaries, if a policy names none.
STATIC_TIMELIMIT = 60

#: More digits than any policy needs; a longer number is a mistake.
_DIGITS = r'\d{1,7}'

ScopeKind = typing.Literal['all', 'aggregate', 'host']


def kind_of(resource: str) -> str:
    """Return ``probe`` for every probe, any other resource as it is."""
    return resource.partition(':')[0]


def is_signal(resource: str) -> bool:
    """Return whether a resource is a signal of harm to the primary."""
    return kind_of(resource) in SIGNALS


class PolicyError(ValueError):
    """A policy that cannot be read.

    ``column`` counts from 1 within ``text``, the value of the option.
    """

    def __init__(self, text: str, column: int, message: str,
                 example: str = EXAMPLES[CPU]) -> None:
        super().__init__(
            f'[secondary_scheduler] policy = {text!r}: column {column}: '
            f'{message}. A correct example: policy = {example}')
        self.text = text
        self.column = column
        self.message = message
        self.example = example


@dataclasses.dataclass(frozen=True)
class Policy:
    """One policy.

    :param resource: name of the resource; ``probe:NAME`` for a probe
    :param threshold: in percent of the host; a count for static resources; in
        its own unit for a probe
    :param timelimit: in seconds (one check a second)
    :param scope_name: None for all hosts
    :param text: the policy in its canonical form, by which reports name it
    :param total: it applies to the hosts of its scope together (Boettger
        2012, section 4.3.5: a set with several items)
    """

    resource: str
    threshold: float
    timelimit: int
    scope_kind: ScopeKind
    scope_name: str | None
    text: str
    total: bool = False

    @property
    def static(self) -> bool:
        """Whether only an operation can change the resource's use."""
        return self.resource in STATIC

    def applies_to(self, host: str,
                   aggregates: Collection[str] | None) -> bool:
        """Return whether the policy applies to a host.

        ``aggregates`` are the names of the host's aggregates, None if they
        are not known.  Then the policy applies, since one that is too strict
        harms no primary.
        """
        if self.scope_kind == 'host':
            return self.scope_name == host
        if self.scope_kind == 'aggregate':
            return aggregates is None or self.scope_name in aggregates
        return True


class _Scanner:
    """Reader of a text from left to right that knows the column."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.start = 0
        self.example = EXAMPLES[CPU]

    def take(self, pattern: str) -> re.Match[str] | None:
        """Skip blanks, and match the pattern at the next character."""
        blank = re.compile(r'\s*').match(self.text, self.pos)
        self.start = blank.end() if blank else self.pos
        found = re.compile(pattern).match(self.text, self.start)
        if found:
            self.pos = found.end()
        return found

    def need(self, pattern: str, what: str) -> re.Match[str]:
        """Take a match of the pattern.

        :raises PolicyError: if there is none
        """
        found = self.take(pattern)
        if found is None:
            self.fail(f'expected {what}')
        return found

    def fail(self, message: str) -> typing.NoReturn:
        """Reject the text at the last position.

        :raises PolicyError: always
        """
        raise PolicyError(self.text, self.start + 1, message, self.example)


def _limit(scan: _Scanner, resource: str) -> tuple[float, str]:
    if resource in STATIC:
        unit = resources.BY_NAME[resource].unit
        count = scan.need(rf'{_DIGITS}(?![\d.%])', f'a whole number of {unit}')
        return float(count[0]), str(int(count[0]))
    if kind_of(resource) == PROBE:
        found = scan.need(r'\d{1,20}(?:\.\d{1,20})?(?![\d.]|\s*%)',
                          'a number in the unit of the probe')[0]
        if float(found) >= _LARGEST:
            scan.fail(f'the limit of a probe is below {_LARGEST:g}')
        return float(found), f'{decimal.Decimal(found).normalize():f}'
    number = scan.need(rf'({_DIGITS}(?:\.\d{{1,9}})?)\s*%',
                       'a percentage of the host, like 90%')
    threshold = float(number[1])
    if threshold > 100:
        scan.fail('a percentage of the host is at most 100%')
    return threshold, f'{threshold:g}%'


def _timelimit(scan: _Scanner, resource: str) -> int:
    if not scan.take(r'for\b'):
        if resource in STATIC:
            return STATIC_TIMELIMIT
        scan.fail('expected "for" and a timelimit, like "for 10s"')
    seconds = scan.need(rf'({_DIGITS})\s*s\b', 'whole seconds, like 10s')
    timelimit = int(seconds[1])
    if not MIN_TIMELIMIT <= timelimit <= MAX_TIMELIMIT:
        scan.fail(f'the timelimit must be from {MIN_TIMELIMIT}s to '
                  f'{MAX_TIMELIMIT}s')
    return timelimit


def _scope(scan: _Scanner, word: str) -> tuple[ScopeKind, str | None]:
    if not scan.take(rf'{word}\b'):
        return 'all', None
    if scan.take(r'aggregate:'):
        # The name of an aggregate may hold blanks: it is the whole rest.
        return 'aggregate', scan.need(r'\S.*', 'an aggregate\'s name')[
            0].rstrip()
    scan.need(r'host:', '"aggregate:" or "host:"')
    return 'host', scan.need(r'\S+', 'a host\'s name')[0]


def parse(text: str, known: Sequence[str] = ENFORCED,
          totals: Sequence[str] = COUNTED) -> Policy:
    """Read one policy.

    :param known: the resources that it may be on
    :param totals: those of them that may be bound "in" a scope
    :raises PolicyError: naming the column and a correct example
    """
    scan = _Scanner(text)
    resource = scan.need(
        rf'(?:{"|".join(known)})\b', 'a resource: '
        + ', '.join(known[:-1]) + f' or {known[-1]}')[0]
    scan.example = EXAMPLES[resource]
    if resource == PROBE:
        resource += ':' + scan.need(
            rf':\s*({PROBE_NAME})\b', '":" and the name of a probe')[1]
    scan.need(r'<=', '"<="')
    threshold, limit = _limit(scan, resource)
    timelimit = _timelimit(scan, resource)
    total = False
    kind, name = _scope(scan, 'on')
    if kind == 'all' and resource in totals:
        kind, name = _scope(scan, 'in')
        total = kind != 'all'
        if total and kind == 'host':
            scan.fail('"in" binds the hosts of an aggregate together; one '
                      'host is bound by "on"')
    if kind == 'all' and totals and scan.take(r'in\b'):
        scan.fail('only ' + ' and '.join(totals) + ' can be bound "in" '
                  'several hosts together; "on" binds each of them')
    if scan.take(r'\S'):
        words = ['"for"'] * (resource in STATIC) + ['"on"']
        words += ['"in"'] * (resource in totals)
        scan.fail('expected the end of the policy' if kind != 'all' else
                  f'expected {", ".join(words)} or the end of the policy')
    canonical = f'{resource} <= {limit} for {timelimit}s'
    if kind != 'all':
        canonical += f' {"in" if total else "on"} {kind}:{name}'
    return Policy(resource, threshold, timelimit, kind, name, canonical,
                  total)


def parse_all(texts: Iterable[str], known: Sequence[str] = ENFORCED,
              totals: Sequence[str] = COUNTED) -> tuple[Policy, ...]:
    """Read all policies in their order, without duplicates.

    :raises PolicyError: for the first that cannot be read
    """
    return tuple(dict.fromkeys(parse(text, known, totals)
                               for text in texts))


def fingerprint(policies: Iterable[Policy]) -> str:
    """Return 16 hex digits that identify a set of policies."""
    texts = '\n'.join(sorted({policy.text for policy in policies}))
    return hashlib.sha256(texts.encode(
        errors='backslashreplace')).hexdigest()[:16]
