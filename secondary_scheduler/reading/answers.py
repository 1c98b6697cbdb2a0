# SPDX-License-Identifier: Apache-2.0

"""HTTP responses of other services."""

from collections.abc import Mapping
import typing

from secondary_scheduler.reading.values import InputError, shown

#: Required types of the values of a response, by name.
Shape = Mapping[str, type]


def read_answer(answer: typing.Any, service: str, shape: Shape
                ) -> dict[str, typing.Any]:
    """Return the JSON body of a response; {} if it is empty and may be.

    :param answer: a response of ``requests``.
    :param service: name of the service, for the message.
    :raises InputError: if the body has another shape, like a proxy's page.
    """
    if not shape and not answer.content:
        return {}
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict) and all(
            isinstance(body.get(name), kind)
            for name, kind in shape.items()):
        return body
    raise InputError(
        f'this address does not answer as {service} does, but with '
        f'{shown(answer.text[:300])}: is its endpoint in the catalogue right, '
        'or is there a proxy before it?')
