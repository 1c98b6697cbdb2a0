# SPDX-License-Identifier: Apache-2.0

"""Rules of HACKING.rst that a program can check."""

import ast
from collections.abc import Iterator
import io
import pathlib
import re
import tokenize
import typing

#: First words of a docstring that hide its subject.
OPENING = re.compile(
    r'(what|who|whom|whose|how|which|whoever|whatever|where|when|from|why'
    r'|on which|by which|in which)\b', re.I)
#: Pronouns that stand for a lease, an instance, a host or an operator.
VAGUE = re.compile(
    r'\b(who|whom|whoever|nobody|somebody|anybody|everybody|those that'
    r'|what is)\b', re.I)
#: Documents and numbers of requirements that are not in the repository.
CITATION = re.compile(
    r'\b(DESIGN\.md|EXPERIMENTS(\.md)?\b|risks\.md|STYLE\.md'
    r'|(REQ|AMB|ENT|KAF|SLI|INV)-\d+|\(?\b[XRF]\d{1,2}\b\)?)')
#: A file of the repository, as prose names one.
FILE = re.compile(
    r'(?<![\w/.<*-])((?:secondary_scheduler|tests|tools|doc|benchmarks'
    r'|devstack|etc|kolla)/[\w./-]+\.(?:py|rst|md|sh|conf|yaml|json))(?!\.?\w)')


class Text(typing.NamedTuple):
    """A docstring or a comment, and its place."""

    path: pathlib.Path
    line: int
    text: str


def read_docstrings(path: pathlib.Path) -> Iterator[Text]:
    """Yield each docstring of a module."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef
                      | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield Text(path, getattr(node, 'lineno', 1), text)


def read_comments(path: pathlib.Path) -> Iterator[Text]:
    """Yield each comment of a module."""
    for token in tokenize.generate_tokens(
            io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield Text(path, token.start[0], token.string)


def openings(texts: list[Text]) -> list[str]:
    """Return the places of docstrings that open with an interrogative."""
    return [f'{one.path}:{one.line}: {one.text.splitlines()[0]}'
            for one in texts if OPENING.match(one.text)]


def vague_share(texts: list[str]) -> float:
    """Return the vague pronouns in 1,000 words."""
    words = sum(len(text.split()) for text in texts)
    return 1000 * sum(len(VAGUE.findall(text)) for text in texts) / max(
        1, words)


def foreign_citations(texts: list[Text], root: pathlib.Path) -> list[str]:
    """Return the places that cite something outside the repository."""
    found = []
    for one in texts:
        for match in CITATION.finditer(one.text):
            found.append(f'{one.path}:{one.line}: {match.group()}')
        for match in FILE.finditer(one.text):
            if not (root / match.group(1)).exists():
                found.append(f'{one.path}:{one.line}: {match.group(1)}')
    return found
