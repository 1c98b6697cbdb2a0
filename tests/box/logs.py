"""Where our code raised, as the services' logs have it."""

from collections.abc import Mapping
import pathlib

import layout

#: A line of a traceback that lies in our code.
_FRAME = b'/secondary_scheduler/'


def sizes() -> Mapping[pathlib.Path, int]:
    """Return the size of each log in bytes."""
    return {path: path.stat().st_size for path in layout.LOG.glob('*.log')}


def frames_since(before: Mapping[pathlib.Path, int]) -> list[str]:
    """Return the lines of tracebacks in our code that logs have got since."""
    found = []
    for path, size in sizes().items():
        with path.open('rb') as log:
            log.seek(min(size, before.get(path, 0)))
            found += [f'{path.name}: {line.decode(errors="replace").strip()}'
                      for line in log if b'File "' in line and _FRAME in line]
    return found
