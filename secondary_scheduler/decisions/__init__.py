"""Decisions: from a cluster and a request to a plan, one module each."""
