# SPDX-License-Identifier: Apache-2.0

"""Faults in clouds.yaml, to explain a failed connection."""

from collections.abc import Iterator
import os
import pathlib
import typing

from openstack.config import loader
import yaml

from secondary_scheduler.reading import yaml_files
from secondary_scheduler.reading.values import InputError

#: Keys whose values are mappings, and keys that name existing files.
_MAPPINGS = ('auth',)
_FILES = ('cacert', 'cert', 'key')


def explain_error(cloud: str | None, exc: Exception) -> str:
    """Return the faults of a cloud's entry, or the error if it has none.

    :param cloud: its name in clouds.yaml; None: OS_CLOUD.
    :param exc: the error with which a request to the cloud failed.
    """
    faults = list(_faults(cloud or os.environ.get('OS_CLOUD')))
    return '\n'.join(faults) or f'{type(exc).__name__}: {exc}'


def _faults(cloud: str | None) -> Iterator[str]:
    for path in _paths():
        try:
            root = yaml_files.read_yaml(path)
            if root is not None:
                yield from _faults_in(path, yaml_files.Mapping(path, root),
                                      cloud)
        except InputError as exc:
            yield str(exc)


def _paths() -> Iterator[str]:
    """Yield the first file of each kind, as openstacksdk looks for them."""
    for variable, files in (
            ('OS_CLIENT_CONFIG_FILE', loader.CONFIG_FILES),
            ('OS_CLIENT_SECURE_FILE', loader.SECURE_FILES)):
        given = os.environ.get(variable)
        yield from [path for path in ([given] if given else []) + files
                    if pathlib.Path(path).is_file()][:1]


def _faults_in(path: str, root: yaml_files.Mapping, cloud: str | None
               ) -> Iterator[str]:
    clouds = root.find('clouds')
    if clouds is None:
        yield f'{path}: expected the name "clouds" at its top'
        return
    for name, entry in yaml_files.Mapping(path, clouds, 'clouds').items():
        if name != cloud:
            continue
        for key, value in yaml_files.Mapping(path, entry,
                                             f'clouds.{name}').items():
            yield from _faults_of(path, f'clouds.{name}.{key}', key, value)


def _faults_of(path: str, name: str, key: str, value: typing.Any
               ) -> Iterator[str]:
    if key in _MAPPINGS:
        yaml_files.Mapping(path, value, name)
    elif key in _FILES and isinstance(value, yaml.ScalarNode) and (
            not pathlib.Path(value.value).expanduser().is_file()):
        yield str(yaml_files.wrong(
            path, value, f'{name}: there is no file {value.value}'))
