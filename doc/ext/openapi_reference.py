# SPDX-License-Identifier: Apache-2.0

"""Sphinx directive ``openapi-reference``: the lease service's API.

The text is made from the OpenAPI description that the service itself serves.
"""

from collections.abc import Iterator, Mapping, Sequence
import http
import re
import typing

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from secondary_scheduler.leases.api import openapi, resources

Schema = Mapping[str, typing.Any]


class OpenApiReference(SphinxDirective):
    """Insert a section for each operation and each schema."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        described = openapi.describe_service(resources.TABLE, '')
        text = '\n'.join(_page(described))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def _page(described: Schema) -> Iterator[str]:
    yield from _title('Operations', '=')
    for path, methods in described['paths'].items():
        for method, operation in methods.items():
            yield from _operation(method.upper(), path, operation)
    yield from _title('Schemas', '=')
    for name, schema in described['components']['schemas'].items():
        yield from (f'.. _schema-{name.lower()}:', '')
        yield from _title(name, '-')
        yield from _text(schema.get('description', ''))
        yield from _fields(schema)


def _operation(method: str, path: str, operation: Schema) -> Iterator[str]:
    yield from _title(f'{method} {path}', '-')
    yield from _text(operation['summary'])
    since = operation.get('x-openstack', {}).get('min-ver')
    if since:
        yield from (f'New in microversion {since}.', '')
    yield from _text(operation.get('description', ''))
    yield from _table('Parameters', ('Name', 'In', 'Type', 'Description'), [
        (f'``{one["name"]}``', one['in'], _type(one['schema']),
         _escape(one.get('description', '')))
        for one in operation['parameters']])
    body = operation.get('requestBody')
    if body:
        yield from ('Request body:', '')
        yield from _fields(body['content']['application/json']['schema'])
    rows = []
    for status, answer in operation['responses'].items():
        content = answer.get('content', {}).get('application/json', {})
        rows.append((f'{status} {http.HTTPStatus(int(status)).phrase}',
                     _type(content['schema']) if content else 'no body'))
    yield from _table('Responses', ('Status', 'Body'), rows)


def _fields(schema: Schema) -> Iterator[str]:
    rows = list(_rows(schema, ''))
    if rows:
        yield from _table('', ('Field', 'Type', 'Required', 'Description'),
                          rows)


def _rows(schema: Schema, prefix: str) -> Iterator[Sequence[str]]:
    for name, inner in schema.get('properties', {}).items():
        full = f'{prefix}{name}'
        required = 'yes' if name in schema.get('required', ()) else ''
        yield (f'``{full}``', _type(inner), required,
               _escape(inner.get('description', '')))
        yield from _rows(inner, f'{full}.')
        yield from _rows(inner.get('items', {}), f'{full}[].')


def _type(schema: Schema) -> str:
    """Return a schema's type in words, with a link to a named schema."""
    if '$ref' in schema:
        name = schema['$ref'].rpartition('/')[2]
        return f':ref:`{name} <schema-{name.lower()}>`'
    for key in ('anyOf', 'oneOf'):
        if key in schema and 'type' not in schema:
            return ' or '.join(dict.fromkeys(map(_type, schema[key])))
    if 'enum' in schema:
        return 'one of ' + ', '.join(f'``{one}``' for one in schema['enum'])
    kind = schema.get('type', 'any')
    kinds = [kind] if isinstance(kind, str) else list(kind)
    if 'array' in kinds and 'items' in schema:
        kinds[kinds.index('array')] = f'array of {_type(schema["items"])}'
    return ' or '.join(kinds)


def _title(text: str, line: str) -> Iterator[str]:
    yield from (text, line * len(text), '')


def _text(text: str) -> Iterator[str]:
    if text:
        yield from (_escape(text), '')


def _escape(text: str) -> str:
    return re.sub(r'([*`|_\\])', r'\\\1', ' '.join(text.split()))


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]
           ) -> Iterator[str]:
    if not rows:
        return
    yield from (f'.. list-table:: {title}'.rstrip(), '   :header-rows: 1', '')
    for row in (header, *rows):
        for number, cell in enumerate(row):
            yield f'     - {cell}' if number else f'   * - {cell}'
    yield ''


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive('openapi-reference', OpenApiReference)
    return {'parallel_read_safe': True}
