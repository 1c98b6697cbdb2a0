"""Workloads of leases: the formats in which traces of them are kept."""
