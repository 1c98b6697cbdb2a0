"""Workloads of leases: trace formats, and annotations of traces."""
