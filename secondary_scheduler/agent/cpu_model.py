# SPDX-License-Identifier: Apache-2.0

"""Name of the host's CPU model: slow-downs on another one are others."""

from secondary_scheduler.agent import kernel_files

#: Lines of /proc/cpuinfo that name the model: those of x86, and of Arm.
_NAMES = (('model name',), ('CPU implementer', 'CPU part'), ('cpu model',))


def read_cpu_model(proc: str = '/proc') -> str | None:
    """Return the name of the CPU model, None if it is unknown."""
    try:
        text = kernel_files.read_text(f'{proc}/cpuinfo')
    except (OSError, ValueError):
        return None
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(':')
        fields.setdefault(name.strip(), value.strip())
    for names in _NAMES:
        if all(fields.get(name) for name in names):
            return ' '.join(fields[name] for name in names)
    return None
