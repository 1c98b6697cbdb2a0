# SPDX-License-Identifier: Apache-2.0

"""Unit tests of what runs inside Watcher.

Nova and Watcher register different options of one name with the one global
configuration. No process but the tests' holds both, so Watcher is given a
configuration of its own while it is imported (``fakes`` gives it the same one
while a test runs). oslo.messaging registers its options when it is imported:
it comes first, since the other tests send with the global configuration.
"""

import importlib
import importlib.util
import pkgutil
from unittest import mock

from oslo_config import cfg

if importlib.util.find_spec('watcher'):
    importlib.import_module('oslo_messaging')
    with mock.patch.object(cfg, 'CONF', cfg.ConfigOpts()):
        ours = importlib.import_module('secondary_scheduler.watcher')
        for module in pkgutil.iter_modules(ours.__path__,
                                           ours.__name__ + '.'):
            importlib.import_module(module.name)
        importlib.import_module(__name__ + '.fakes')
