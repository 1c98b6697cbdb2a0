"""Deprecated path of ``secondary_scheduler.leases.api``."""
