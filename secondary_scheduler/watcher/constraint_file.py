# SPDX-License-Identifier: Apache-2.0

"""File with the operator's placement constraints."""

from collections.abc import Callable
import os
import textwrap
import threading
from typing import Any

from oslo_log import log

from secondary_scheduler.model.constraints import Constraint, Quarantine
from secondary_scheduler.plans.constraint_rules import (
    ConstraintRule,
    KnownNames,
    RuleResolver,
    read_rule,
)
from secondary_scheduler.reading import yaml_files
from secondary_scheduler.reading.fields import DocumentError, Fields
from secondary_scheduler.reading.values import InputError

LOG = log.getLogger(__name__)


def read_constraint_file(path: str) -> tuple[ConstraintRule, ...]:
    """Read the rules of a file, which are a YAML list.

    :raises InputError: naming the file, line, entry and field, and the
        expected value
    """
    root = yaml_files.read_yaml(path)
    rules = []
    for number, node in enumerate(yaml_files.list_items(path, root), 1):
        value = yaml_files.plain_value(path, node)
        try:
            rules.append(read_rule(number, Fields(value, f'entry {number}')))
        except DocumentError as exc:
            raise yaml_files.wrong(path, node, str(exc)) from None
    return tuple(rules)


class ConstraintFile:
    """Keeps the rules of the last readable version of the file.

    :param path: returns its path, '' if there is no file
    """

    def __init__(self, path: Callable[[], str | None]) -> None:
        self._path = path
        self._version: object = None
        self._rules: tuple[ConstraintRule, ...] | None = None
        #: Problems of the present rules that are logged.
        self._told: set[str] = set()
        #: Decisions and the lease engine run in threads of their own.
        self._lock = threading.Lock()

    def find_constraints(self, known: Callable[[], KnownNames]
                         ) -> tuple[Constraint, ...]:
        """Return the constraints.

        If the file could never be read, all hosts are in quarantine, since
        any instance may be one that the operator keeps apart.

        :param known: returns the names that are known now
        """
        with self._lock:
            return self._find_constraints(known)

    def _find_constraints(self, known: Callable[[], KnownNames]
                          ) -> tuple[Constraint, ...]:
        self._refresh()
        if self._rules is None:
            return (Quarantine(frozenset(known().hosts)),)
        if not self._rules:
            return ()
        resolver = RuleResolver(known())
        found = resolver.resolve(self._rules)
        problems = [one for one in dict.fromkeys(resolver.problems)
                    if one not in self._told]
        if problems:
            LOG.warning('Placement constraints in %(path)s: %(problems)s.', {
                'path': self._path(),
                'problems': textwrap.shorten('; '.join(problems), 1000)})
        # Not all callers know the same names.
        self._told.update(problems)
        return found

    def _refresh(self) -> None:
        path = self._path() or ''
        version = path, _stamp(path)
        if version == self._version:
            return
        if isinstance(self._version, tuple) and path != self._version[0]:
            self._rules = None      # rules of another file say nothing
        self._version = version
        self._told.clear()
        try:
            self._rules = read_constraint_file(path) if path else ()
        except InputError as exc:
            LOG.error('Placement constraints cannot be read: %(reason)s. '
                      '%(effect)s', {
                          'reason': exc, 'effect':
                          'No instance is moved to another host.'
                          if self._rules is None
                          else 'The last valid ones stay in force.'})
        else:
            LOG.info('Placement constraints: %(count)d entries in %(path)s.',
                     {'count': len(self._rules), 'path': path or 'no file'})


def _stamp(path: str) -> Any:
    """Return a value that differs for another version of a file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
