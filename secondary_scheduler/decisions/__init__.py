"""Decisions make a plan from a cluster and a request."""
