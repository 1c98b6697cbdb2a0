# SPDX-License-Identifier: Apache-2.0

"""Validation of the lease service's answers by its own description."""

import typing

import jsonschema

Json = dict[str, typing.Any]

_JSON = 'application/json'


def validate_answer(description: Json, method: str, path: str, status: int,
                    body: typing.Any) -> typing.Any:
    """Return the body of an answer if the description allows it.

    :param description: the OpenAPI description of the service.
    :param path: path of the operation there, such as ``/leases/{id}``.
    :raises ValidationError: if the body does not fit its schema.
    :raises KeyError: if the description has no such answer.
    """
    answers = description['paths'][path][method.lower()]['responses']
    if str(status) not in answers:
        raise KeyError(f'{method} {path} is answered with {status}; '
                       f'the description has {", ".join(answers)}')
    content = answers[str(status)].get('content')
    schema = content[_JSON]['schema'] if content else {'type': 'null'}
    jsonschema.Draft202012Validator(
        {**schema, 'components': description['components']}).validate(body)
    return body
