# SPDX-License-Identifier: Apache-2.0

"""Work of servers, which they count in memory and tell on their console.

A line ``UNITS BOOT COUNT BOOT COUNT`` has the id of the boot, twice with the
count, since a console may lose characters when its server moves.  A count that
goes on after a suspension or a migration proves that the memory is intact.
"""

import re
import typing

#: Keeps each CPU busy, and counts the work of the first one.
SCRIPT = '''\
#!/bin/sh
boot=$(cat /proc/sys/kernel/random/boot_id)
busy() {
    while :; do :; done
}
for cpu in $(sed -n 's/^processor[^0-9]*//p' /proc/cpuinfo); do
    [ "$cpu" = 0 ] || busy &
done
units=0
(
    while :; do
        i=0
        while [ $i -lt 100000 ]; do i=$((i + 1)); done
        units=$((units + 1))
        echo "UNITS $boot $units $boot $units" > /dev/console
    done
) < /dev/null > /dev/null 2>&1 &
'''

_LINE = re.compile(r'UNITS (\S+) (\d+) \1 \2\s*$', re.MULTILINE)


class Work(typing.NamedTuple):
    """Finished units since a boot, with the id of the boot."""

    boot: str
    units: int


def read_work(console: str) -> Work | None:
    """Return the newest whole count on a console."""
    found = _LINE.findall(console)
    return Work(found[-1][0], int(found[-1][1])) if found else None
