# SPDX-License-Identifier: Apache-2.0

"""Drivers by the entry points in setup.cfg.

An installed version of the package may be older than its sources.
"""

import types
from unittest import mock

from stevedore import exception

from secondary_scheduler.cpu_affinity import base
from secondary_scheduler.simulation.affinity import profiles
from tests.unit import test_packaging


def _load(namespace, name):
    """Return a manager of a driver, as stevedore does."""
    points = test_packaging.entry_points()[namespace]
    if name not in points:
        raise exception.NoMatches(name)
    return types.SimpleNamespace(driver=test_packaging.load(points[name]))


def of_setup():
    """Return a context in which setup.cfg names the drivers."""
    names = test_packaging.entry_points()[base.NAMESPACE]
    return mock.patch.multiple(
        profiles, driver=types.SimpleNamespace(DriverManager=_load),
        extension=types.SimpleNamespace(
            ExtensionManager=lambda namespace: types.SimpleNamespace(
                names=lambda: list(names))))
