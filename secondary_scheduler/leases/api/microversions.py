# SPDX-License-Identifier: Apache-2.0

"""Microversions of the service, selected by a header of the request.

``OpenStack-API-Version: secondary-lease 1.0``; the default is the oldest.
"""

from microversion_parse import Version as Version
from microversion_parse import parse_version_string

SERVICE_TYPE = 'secondary-lease'
#: Key of the requested version in the WSGI environment.
ENVIRON = f'{SERVICE_TYPE}.microversion'

FIRST = Version(1, 0)
#: Quotes, and the ``next_start`` of a lease.
QUOTES = Version(1, 1)

#: Leases without a duration, and slots without an end.
OPEN = Version(1, 2)

#: Properties of servers in node sets, and ``unverified`` of a lease.
SERVERS = Version(1, 3)

#: ``served`` and ``charge`` of a lease, and the engine's last pass.
SERVED = Version(1, 4)

#: Records for operators, accounting, and the order of lists of leases.
RECORDS = Version(1, 5)

#: The standing trust of a user in a project.
TRUSTS = Version(1, 6)

#: From the oldest to the newest; see doc/source/user/lease-api.rst.
VERSIONS = [str(one) for one in (FIRST, QUOTES, OPEN, SERVERS, SERVED,
                                 RECORDS, TRUSTS)]


def parse(text: str) -> Version:
    """Parse a version like "1.3"."""
    return parse_version_string(text)
