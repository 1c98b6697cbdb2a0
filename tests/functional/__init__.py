# SPDX-License-Identifier: Apache-2.0

"""Tests of several parts together, without services.

Importing the unit tests' package chooses native threads for oslo.service
before anything else is imported.
"""

import tests.unit  # noqa: F401
