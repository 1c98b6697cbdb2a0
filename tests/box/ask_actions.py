# SPDX-License-Identifier: Apache-2.0

"""Pre-conditions of all our actions for a server.

``python -m tests.box.ask_actions UUID CONFIG-FILE ...`` prints, as JSON, the
answer of each action's pre-condition: "skipped: reason", "failed: reason" or
"would act".
It is a process of its own, since it needs Watcher's configuration.
"""

import json
import sys

from stevedore import extension
from watcher import objects
from watcher.common import exception

from secondary_scheduler.watcher.settings import CONF


def main() -> None:
    """Ask all actions."""
    uuid, *files = sys.argv[1:]
    arguments = [part for file in files for part in ('--config-file', file)]
    CONF(arguments, project='watcher', default_config_files=[])
    objects.register_all()
    answers = {}
    for found in extension.ExtensionManager('watcher_actions'):
        if not found.name.startswith('secondary_'):
            continue
        action = found.plugin({})
        action.input_parameters = {'resource_id': uuid}
        try:
            action.pre_condition()
            answers[found.name] = 'would act'
        except exception.ActionSkipped as exc:
            answers[found.name] = f'skipped: {exc}'
        except exception.ActionExecutionFailure as exc:
            answers[found.name] = f'failed: {exc}'
    print(json.dumps(answers))


if __name__ == '__main__':
    main()
