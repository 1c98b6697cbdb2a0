# SPDX-License-Identifier: Apache-2.0

"""REST service of leases: stores requests and shows leases and plans.

The service makes no scheduling decision. The lease engine reads requests from
the database and writes its plans into it (``db.store``, ``db.plans``).
"""
