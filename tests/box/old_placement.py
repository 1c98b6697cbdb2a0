# SPDX-License-Identifier: Apache-2.0

"""WSGI application: Placement without its microversions from 1.36 on."""

from placement import microversion

del microversion.VERSIONS[microversion.VERSIONS.index('1.36'):]

from placement.wsgi.api import application  # noqa: E402, F401
