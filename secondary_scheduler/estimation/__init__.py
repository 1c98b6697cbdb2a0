"""Estimates of a host's free capacity and of operations' durations."""
