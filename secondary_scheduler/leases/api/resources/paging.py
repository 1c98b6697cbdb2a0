# SPDX-License-Identifier: Apache-2.0

"""Pages of lists."""

from collections.abc import Sequence
import typing
import urllib.parse

from secondary_scheduler.leases.api.routing import Call


def page_length(call: Call, default: int = 2 ** 31) -> int:
    """Return the number of items of the requested page."""
    return min(call.query.get('limit', default),
               call.service.conf.secondary_lease_api.max_limit)


def next_links(call: Call, path: str, found: Sequence[typing.Any],
               limit: int, key: str) -> list[dict[str, str]]:
    """Return the link to the next page, if there is one.

    :param found: items of this page, and one more if there is a next page.
    :param limit: number of items of a page.
    :param key: attribute of an item that is its marker.
    """
    if len(found) <= limit:
        return []
    query = [(name, value) for name, value in call.request.GET.items()
             if name not in ('marker', 'limit')]
    query += [('limit', str(limit)),
              ('marker', getattr(found[limit - 1], key))]
    return [{'rel': 'next', 'href': call.link(
        f'{path}?{urllib.parse.urlencode(query)}')}]
