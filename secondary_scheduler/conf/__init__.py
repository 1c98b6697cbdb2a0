"""Every option of the plug-in, one module per group.

The modules are imported when they are asked for, so that a service can
register just its own (``conf.policy.register_opts(CONF)``).
"""

from collections.abc import Iterator
import importlib
import types
import typing

from oslo_config import cfg

MODULES = ('policy', 'agent', 'nova', 'watcher')


def _modules() -> Iterator[types.ModuleType]:
    for name in MODULES:
        yield importlib.import_module(f'{__name__}.{name}')


def register_all(conf: cfg.ConfigOpts) -> None:
    """Register the options of every group."""
    for module in _modules():
        module.register_opts(conf)


def list_opts() -> list[tuple[typing.Any, list[cfg.Opt]]]:
    """Return all (group, options), for oslo-config-generator."""
    found: list[tuple[typing.Any, list[cfg.Opt]]] = []
    for module in _modules():
        found.extend(module.list_opts())
    return found
