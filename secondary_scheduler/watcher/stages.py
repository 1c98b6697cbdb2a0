# SPDX-License-Identifier: Apache-2.0

"""Time stamps from a violation to the first call of Nova.

Each stage is one log line of a fixed form.  The batch joins the lines in the
logs of decision engine and applier:
``secondary-stage batch=<id> stage=<name> t=<seconds since the epoch>``.
"""

import collections
import threading
import time

from oslo_log import log

LOG = log.getLogger(__name__)

REPORT = 'report'                   # the agent noticed (its clock)
WINDOW = 'window'                   # the collect window ended
AUDIT_CREATED = 'audit_created'
STRATEGY = 'strategy'               # the strategy began
DECIDED = 'decided'
PLAN_CREATED = 'plan_created'
FIRST_API_CALL = 'first_api_call'   # to Nova, of the batch in this applier

_REMEMBERED = 1000
_first_calls: 'collections.OrderedDict[str, None]' = collections.OrderedDict()
_lock = threading.Lock()


def mark(batch: str, stage: str, at: float | None = None) -> None:
    """Log that a batch reached a stage, now or ``at`` (s, epoch)."""
    LOG.info('secondary-stage batch=%s stage=%s t=%.3f', batch, stage,
             time.time() if at is None else at)


def mark_first_call(batch: str) -> None:
    """Log the first call of Nova of a batch, not the later ones."""
    with _lock:
        if batch in _first_calls:
            return
        _first_calls[batch] = None
        if len(_first_calls) > _REMEMBERED:
            _first_calls.popitem(last=False)
    mark(batch, FIRST_API_CALL)
