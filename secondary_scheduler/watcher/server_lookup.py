# SPDX-License-Identifier: Apache-2.0

"""Look-up of servers one by one: found, gone, or unseen.

A list says nothing of a server that it does not contain: Nova leaves the
servers of a cell that does not answer out, with status 200.  Only a 404 for
the server itself means that it was deleted.
"""

from collections.abc import Callable, Collection
import dataclasses
import time

from secondary_scheduler.watcher import list_gate
from secondary_scheduler.watcher.cloud import Cloud
from secondary_scheduler.watcher.cloud_errors import (
    NotFound,
    TimedOut,
    Unseen,
)
from secondary_scheduler.watcher.cloud_snapshot import NovaServer


@dataclasses.dataclass
class LookUp:
    """Result of a look-up, by UUID.

    :param found: secondaries as Nova shows them.
    :param gone: servers that do not exist any more.
    :param strangers: servers that are no secondaries.
    :param unseen: servers of which the cell does not answer.
    """

    found: dict[str, NovaServer] = dataclasses.field(default_factory=dict)
    gone: set[str] = dataclasses.field(default_factory=set)
    strangers: set[str] = dataclasses.field(default_factory=set)
    unseen: set[str] = dataclasses.field(default_factory=set)


def look_up_servers(cloud: Cloud, uuids: Collection[str],
                    clock: Callable[[], float] = time.monotonic) -> LookUp:
    """Look servers up, one request for each.

    The first request that waits for a cell is the last one: others may wait
    for the same cell.  Servers without a request are in no part of the result.

    :param clock: returns monotonic seconds.
    :raises CloudError: if Nova itself does not answer.
    """
    result = LookUp()
    for uuid in uuids:
        began = clock()
        try:
            server = cloud.server(uuid)
        except NotFound:
            result.gone.add(uuid)
        except TimedOut:
            result.unseen.add(uuid)
            break
        except Unseen:
            result.unseen.add(uuid)
            if clock() > began + list_gate.PROMPT_S:
                break
        else:
            if server is None:
                result.strangers.add(uuid)
            else:
                result.found[uuid] = server
    return result
