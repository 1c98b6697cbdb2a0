"""Answers of other services over HTTP."""

from collections.abc import Mapping
import typing

from secondary_scheduler.reading.values import InputError, shown

#: Types of the values that an answer must have, by name.
Shape = Mapping[str, type]


def read_answer(answer: typing.Any, service: str, shape: Shape
                ) -> dict[str, typing.Any]:
    """Return the body of an answer, {} where it has none and needs none.

    :param answer: as ``requests`` has it.
    :raises InputError: if it is not of that shape, like a proxy's page.
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
