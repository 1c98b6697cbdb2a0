# SPDX-License-Identifier: Apache-2.0

"""XML as elements with line numbers.

Entities are never expanded, and nothing is fetched.
"""

from collections.abc import Collection, Iterator, Mapping
import typing
from xml.etree import ElementTree  # nosec B405: for its errors only

from defusedxml import DefusedXmlException
from defusedxml import ElementTree as SafeTree

from secondary_scheduler.reading import files
from secondary_scheduler.reading.values import (
    MOST,
    InputError,
    parse_whole,
    shown,
)

_NEEDED = object()


class Element:
    """An element with its attributes, text and child elements."""

    def __init__(self, path: files.Path, line: int, tag: str,
                 attributes: Mapping[str, str]) -> None:
        self.path = path
        self.line = line
        self.tag = tag
        self.text = ''
        self._attributes = attributes
        self.children: list[Element] = []

    def wrong(self, problem: str) -> InputError:
        """Return an error that names this element and its line."""
        return InputError(f'{self.path}, line {self.line}: <{self.tag}>: '
                          f'{problem}')

    def every(self, tag: str) -> Iterator['Element']:
        """Yield the child elements of a name."""
        return (one for one in self.children if one.tag == tag)

    def find(self, *tags: str) -> 'Element | None':
        """Return the first element at a path below this one, or None."""
        found: Element | None = self
        for tag in tags:
            found = None if found is None else next(found.every(tag), None)
        return found

    def child(self, tag: str) -> 'Element':
        """Return the first child element of a name.

        :raises InputError: if there is none.
        """
        found = self.find(tag)
        if found is None:
            raise self.wrong(f'expected a <{tag}> in it')
        return found

    def get(self, name: str, default: object = _NEEDED) -> typing.Any:
        """Return an attribute.

        :raises InputError: if it is missing and has no default.
        """
        value = self._attributes.get(name, default)
        if value is _NEEDED:
            raise self.wrong(f'expected the attribute {name}')
        return value

    def choice(self, name: str, values: Collection[str]) -> str:
        """Return an attribute that is one of the given values.

        :raises InputError: if it is another value.
        """
        value = self.get(name)
        if value not in values:
            raise self.wrong(f'{name}: expected one of {" ".join(values)}, '
                             f'not {shown(value)}')
        return str(value)

    def whole(self, name: str, default: object = _NEEDED, least: int = 0,
              most: int = MOST) -> int:
        """Return an attribute that is a whole number.

        :raises InputError: if it is not a whole number, or out of bounds.
        """
        try:
            return parse_whole(str(self.get(name, default)), least, most)
        except InputError as exc:
            if name not in self._attributes:
                raise
            raise self.wrong(f'{name}: {exc}') from None


class _Builder:
    """Builds elements from the events of the parser."""

    def __init__(self, path: files.Path) -> None:
        self._path = path
        self.line: typing.Callable[[], int] = int
        self._open: list[Element] = []
        self.root: Element | None = None

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Handle the start of an element."""
        one = Element(self._path, self.line(), tag, attributes)
        if self._open:
            self._open[-1].children.append(one)
        elif self.root is None:
            self.root = one
        self._open.append(one)

    def data(self, text: str) -> None:
        """Handle text."""
        self._open[-1].text += text

    def end(self, tag: str) -> None:
        """Handle the end of an element."""
        self._open.pop()

    def close(self) -> Element | None:
        """Return the root."""
        return self.root


def read_xml(path: files.Path) -> Element:
    """Return the root of an XML file.

    :raises InputError: if it cannot be read, is not XML, has an unknown
        encoding, or has entities.
    """
    data = files.read_bytes(path)
    builder = _Builder(path)
    parser = SafeTree.DefusedXMLParser(target=builder)
    builder.line = lambda: int(parser.parser.CurrentLineNumber)
    try:
        parser.feed(data)
        root = parser.close()
    except ElementTree.ParseError as exc:
        line, problem = exc.position[0], str(exc).partition(':')[0]
        raise InputError(f'{path}, line {line}: expected XML: {problem}'
                         ) from None
    except DefusedXmlException as exc:
        raise InputError(
            f'{path}, line {builder.line()}: expected XML without entities '
            f'({type(exc).__name__})') from None
    except (LookupError, ValueError) as exc:
        raise InputError(
            f'{path}, line 1: the encoding in the XML declaration cannot be '
            f'read ({exc}): expected UTF-8, UTF-16 or one of 8 bits'
            ) from None
    assert isinstance(root, Element)
    return root
