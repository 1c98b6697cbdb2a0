# SPDX-License-Identifier: Apache-2.0

"""Typed reading of untrusted input, within bounds.

``files`` opens files, ``markup`` reads XML, ``options`` configuration,
``fields`` JSON objects, ``times`` dates and times, and ``values`` single
values. A reader returns values of the requested types and within the
requested bounds. Otherwise it raises an ``InputError`` that names the file,
the line or the path of the field, and the expected value.
"""
