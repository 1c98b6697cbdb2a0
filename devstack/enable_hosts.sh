#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Let every compute host of the cloud take secondaries, and put it into the
# aggregate. stack.sh runs this on the node with Nova's API; run it there
# again, after DevStack's tools/discover_hosts.sh, when a compute node has
# been added. Hosts that have it already keep their totals; one that was
# disabled is opened.

set -o errexit -o nounset -o pipefail

export OS_CLOUD=${OS_CLOUD:-devstack-admin}
SECONDARY_AGGREGATE=${SECONDARY_AGGREGATE:-secondary}

# A server that is suspended keeps its claims; leases count on that.
claims=1
if openstack service show secondary-lease >/dev/null 2>&1; then
    claims=2
fi

openstack aggregate show "$SECONDARY_AGGREGATE" >/dev/null 2>&1 ||
    openstack aggregate create "$SECONDARY_AGGREGATE"
members=$(openstack aggregate show "$SECONDARY_AGGREGATE" -f json -c hosts)
for host in $(openstack compute service list --service nova-compute \
        -f value -c Host); do
    if [[ "$members" != *"\"$host\""* ]]; then
        openstack aggregate add host "$SECONDARY_AGGREGATE" "$host"
    fi
    secondary-scheduler host enable "$host" --claims "$claims"
done
