# SPDX-License-Identifier: Apache-2.0

"""Files with the models of decisions, for ``secondary-scheduler plan``."""

import json
import os
import pathlib
import tempfile

from oslo_log import log

from secondary_scheduler.model.cluster import Cluster
from secondary_scheduler.plans.model_documents import write_model

LOG = log.getLogger(__name__)


def write_model_file(directory: str, audit: str, cluster: Cluster) -> None:
    """Write the model of an audit's last decision, if there is a directory.

    Only the service's user may read the file, which is replaced as a whole.
    An error is logged: no decision depends on the file.

    :param directory: its path, '' if models are not written
    :param audit: UUID of the audit, after which the file is named
    """
    if not directory:
        return
    path = pathlib.Path(directory) / f'{audit}.json'
    try:
        descriptor, scratch = tempfile.mkstemp(
            dir=directory, prefix='.', suffix='.json')
        try:
            with os.fdopen(descriptor, 'w', encoding='utf-8') as file:
                json.dump(write_model(cluster), file, indent=1)
            os.replace(scratch, path)
        except BaseException:
            os.unlink(scratch)
            raise
    except Exception as exc:
        LOG.warning('The model of audit %(audit)s cannot be written: '
                    '%(reason)s. See [secondary_watcher] model_directory.',
                    {'audit': audit, 'reason': exc})
