"""Lease engine in Watcher: runner, cloud and actions."""
