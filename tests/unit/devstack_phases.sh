#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs phases of the DevStack plug-in with DevStack's own functions.
# Arguments: DEVSTACK FOLDER REPOSITORY SERVICES PHASE ...
#
# DEVSTACK has functions, functions-common, inc and lib. All is written below
# FOLDER, whose bin directory stands in for the virtual environment. Commands
# for a cloud, packages and units are written to the file "calls" instead.

TOP_DIR=$1 FOLDER=$2 REPOSITORY=$3 ENABLED_SERVICES=$4
shift 4

DEST=$FOLDER/stack
DATA_DIR=$FOLDER/data
STACK_USER=$(id -un)
SERVICE_HOST=192.0.2.1 HOST_IP=192.0.2.1 SERVICE_PROTOCOL=http
SERVICE_PASSWORD=secret ADMIN_PASSWORD=secret DATABASE_PASSWORD=secret
DATABASE_USER=root DATABASE_HOST=192.0.2.1 DATABASE_TYPE=mysql
RABBIT_PASSWORD=secret RABBIT_HOST=192.0.2.1 RABBIT_USERID=stackrabbit
SERVICE_PROJECT_NAME=service SERVICE_DOMAIN_NAME=Default
REGION_NAME=RegionOne ENABLE_DEBUG_LOG_LEVEL=False GLOBAL_VENV=True
os_PACKAGE=deb os_VENDOR=Debian DISTRO=bookworm
export HOME=$FOLDER

# shellcheck disable=SC1090,SC1091  # DevStack's
{
    source "$TOP_DIR/functions"
    source "$TOP_DIR/lib/apache"
    source "$TOP_DIR/lib/tls"
    source "$TOP_DIR/lib/database"
    source "$TOP_DIR/lib/rpc_backend"
    source "$TOP_DIR/lib/keystone"
}
DEVSTACK_VENV=$FOLDER/venv
NOVA_CONF_DIR=$FOLDER/etc/nova
NOVA_CONF=$NOVA_CONF_DIR/nova.conf
NOVA_FILTERS=ComputeFilter
PLACEMENT_CONF_DIR=$FOLDER/etc/placement
WATCHER_CONF_DIR=$FOLDER/etc/watcher
WATCHER_CONF=$WATCHER_CONF_DIR/watcher.conf
SECONDARY_CONF_DIR=$FOLDER/etc/secondary_scheduler
APACHE_CONF_DIR=$FOLDER/etc/apache2
HORIZON_DIR=$FOLDER/horizon
TEMPEST_CONFIG=$FOLDER/etc/tempest.conf

function sudo {
    local word
    for word in "$@"; do
        if [[ "$word" == /etc/* || "$word" == /usr/* || "$word" == /var/* ]]
        then
            echo "sudo $*" >>"$FOLDER/calls"
            return
        fi
    done
    "$@"
}
for name in setup_develop pip_install_gr run_process stop_process \
        restart_apache_server enable_apache_site disable_apache_site \
        recreate_database; do
    eval "function $name { echo \"$name \$*\" >>\"\$FOLDER/calls\"; }"
done
function openstack {
    echo "openstack $*" >>"$FOLDER/calls"
    echo 0123456789abcdef
}
function timeout {
    shift
    "$@"
}
set +o xtrace
mkdir -p "$NOVA_CONF_DIR" "$PLACEMENT_CONF_DIR" "$WATCHER_CONF_DIR" \
    "$APACHE_CONF_DIR/sites-available" "$DATA_DIR" \
    "$HORIZON_DIR/openstack_dashboard/local/enabled"
touch "$NOVA_CONF" "$WATCHER_CONF"

# shellcheck disable=SC1091  # the plug-in's
source "$REPOSITORY/devstack/settings"
echo "TEMPEST_PLUGINS $TEMPEST_PLUGINS" >>"$FOLDER/calls"
set -o errexit
for phase in "$@"; do
    # shellcheck disable=SC1091,SC2086  # "stack extra" is two words
    source "$REPOSITORY/devstack/plugin.sh" $phase
done
