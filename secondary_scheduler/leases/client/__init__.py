"""The client of the lease service, and commands for ``openstack``."""
