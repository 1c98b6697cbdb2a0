#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Check the subject of a commit message against HACKING.rst."""

import pathlib
import re
import sys

PREFIXES = ('agent', 'leases', 'nova', 'watcher', 'decisions', 'plans',
            'simulator', 'box', 'devstack', 'docs', 'tests', 'build')
LONGEST = 72
#: Imperatives that look like other forms.
IMPERATIVES = frozenset({'bring', 'embed', 'exceed', 'feed', 'need', 'proceed',
                         'shed', 'string'})


def problems(message: str) -> list[str]:
    """Return the rules that a message breaks, in plain words."""
    subject = message.partition('\n')[0]
    if subject.startswith(('Merge ', 'Revert ', 'fixup! ', 'squash! ')):
        return []
    found = []
    if len(subject) > LONGEST:
        found.append(f'the subject has {len(subject)} characters, at most '
                     f'{LONGEST} are allowed')
    prefix, colon, rest = subject.partition(': ')
    if not colon or prefix not in PREFIXES:
        found.append('the subject begins with none of the prefixes '
                     + ', '.join(f'"{one}:"' for one in PREFIXES))
    elif ((word := re.match(r'\w+(ed|ing)\b', rest))
          and word.group() not in IMPERATIVES):
        found.append('the subject is imperative: "add", not "added" or '
                     '"adding"')
    return found


def main() -> int:
    """Check the message in the file that git names."""
    found = problems(pathlib.Path(sys.argv[1]).read_text())
    for one in found:
        print(f'commit message: {one} (HACKING.rst)', file=sys.stderr)
    return int(bool(found))


if __name__ == '__main__':
    sys.exit(main())
