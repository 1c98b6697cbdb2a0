"""The lease service: what users ask for is kept here, and told to them.

Nothing here decides.  The scheduler of leases reads what users want from the
database and writes what it plans into it (``db.store``, ``db.plans``).
"""
