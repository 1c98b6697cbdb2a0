"""Client of the lease service, and commands for ``openstack``."""
