# SPDX-License-Identifier: Apache-2.0

"""Files with profiles of workload classes, in JSON."""

import json

from secondary_scheduler.cpu_affinity.workload_profiles import (
    WorkloadProfiles,
    parse_profiles,
)
from secondary_scheduler.reading import files
from secondary_scheduler.reading.values import InputError


def read_profiles(path: files.Path) -> WorkloadProfiles:
    """Read profiles; ``parse_profiles`` describes their form.

    :raises InputError: with the file, and the place of the first fault
    """
    text = files.read_document(path)
    try:
        return parse_profiles(json.loads(text))
    except (ValueError, RecursionError) as exc:
        raise InputError(f'{files.name_of(path)}: {exc}') from None
