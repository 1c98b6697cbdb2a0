# SPDX-License-Identifier: Apache-2.0

"""Checks of YAML files before other libraries read them."""

from collections.abc import Iterator
import itertools
import typing

import yaml

from secondary_scheduler.reading import files
from secondary_scheduler.reading.values import InputError

#: Largest number of values of a node, and how deep they may be nested.
_LARGEST = 1_000_000
_DEEPEST = 8


def read_yaml(path: files.Path) -> yaml.Node | None:
    """Return the root node of a YAML file; nodes have line numbers.

    Aliases are not expanded, and no objects but nodes are created.

    :raises InputError: naming the line that is not YAML.
    """
    text = files.read_plain(path)
    try:
        return yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        place = f', line {mark.line + 1}' if mark else ''
        raise InputError(f'{files.name_of(path)}{place}: expected YAML: '
                         f'{exc.problem or exc.context}') from None
    except yaml.reader.ReaderError as exc:
        line = text.count('\n', 0, exc.position) + 1
        raise InputError(f'{files.name_of(path)}, line {line}: expected YAML: '
                         f'{exc.reason}') from None
    except (RecursionError, ValueError) as exc:
        raise InputError(f'{files.name_of(path)}: expected YAML: {exc}'
                         ) from None


class Mapping:
    """A mapping of a YAML file; errors name the line."""

    def __init__(self, path: files.Path, node: yaml.Node | None,
                 label: str = 'the file') -> None:
        self._path = path
        self._label = label
        if not isinstance(node, yaml.MappingNode):
            raise wrong(path, node, f'{label}: expected a mapping')
        self._node = node

    def items(self) -> Iterator[tuple[str, yaml.Node]]:
        """Yield names and values.

        :raises InputError: if a name is not a text.
        """
        for key, value in self._node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise wrong(self._path, key, f'{self._label}: expected a name')
            yield str(key.value), value

    def find(self, name: str) -> yaml.Node | None:
        """Return the value of a name, None if there is none."""
        return dict(self.items()).get(name)


def list_items(path: files.Path, node: yaml.Node | None) -> list[yaml.Node]:
    """Return the entries of a file that is a list.

    :raises InputError: if it is not a list, as an empty file.
    """
    if not isinstance(node, yaml.SequenceNode):
        raise wrong(path, node, 'expected a list, [] if it has no entry')
    return list(node.value)


def plain_value(path: files.Path, node: yaml.Node) -> object:
    """Return a node as lists, dictionaries and texts.

    Numbers and truth values are texts, too: a host may be named "12".

    :raises InputError: if a name is given twice, or the node is too large or
        nested too deeply, as by aliases.
    """
    return _plain(path, node, itertools.count(1), 0)


def _plain(path: files.Path, node: yaml.Node, counter: Iterator[int],
           depth: int) -> object:
    if next(counter) > _LARGEST or depth > _DEEPEST:
        raise wrong(path, node, f'expected at most {_LARGEST} values, nested '
                    f'{_DEEPEST} deep')
    if isinstance(node, yaml.SequenceNode):
        return [_plain(path, one, counter, depth + 1) for one in node.value]
    if isinstance(node, yaml.MappingNode):
        found: dict[str, object] = {}
        for name, value in Mapping(path, node, 'an entry').items():
            if name in found:
                raise wrong(path, value, f'the name "{name}" is given twice: '
                            'expected once')
            found[name] = _plain(path, value, counter, depth + 1)
        return found
    return str(node.value)


def wrong(path: files.Path, node: typing.Any, problem: str) -> InputError:
    """Return an error that names the line of a node."""
    line = node.start_mark.line + 1 if node is not None else 1
    return InputError(f'{files.name_of(path)}, line {line}: {problem}')
