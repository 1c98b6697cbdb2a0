# SPDX-License-Identifier: Apache-2.0

"""Client of the lease service, and commands for ``openstack``."""
