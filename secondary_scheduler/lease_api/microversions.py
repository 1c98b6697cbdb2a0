"""The versions of the service, which a request chooses by a header.

``OpenStack-API-Version: secondary-lease 1.0``; without it the oldest.
"""

SERVICE_TYPE = 'secondary-lease'
#: From the oldest to the newest; doc/source/lease-api.rst tells each.
VERSIONS = ['1.0']
