# SPDX-License-Identifier: Apache-2.0

"""Unit tests.

Services run on native threads; oslo.service takes the first word on it, for
the whole process, from whatever is imported first.
"""

import contextlib

with contextlib.suppress(ImportError):
    from oslo_service import backend

    backend.init_backend(backend.BackendType.THREADING)
