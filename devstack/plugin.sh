#!/usr/bin/env bash
#
# DevStack plug-in of secondary_scheduler.
#
#   stack install      our package, beside Nova and Watcher
#   stack post-config  nova.conf, watcher.conf, our own files, the accounts,
#                      the database of leases, Horizon's panels
#   stack extra        the agent and the lease service are started
#   stack test-config  hosts enabled, a flavor, the switch, tempest.conf
#   unstack            both are stopped, limits are lifted, what we made in
#                      the cloud is deleted
#   clean              files and state are removed
#
# Contract: https://docs.openstack.org/devstack/latest/plugins.html

# Save trace setting
_XTRACE_SECONDARY=$(set +o | grep xtrace)
set +o xtrace

SECONDARY_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SECONDARY_SWITCH=secondary
SECONDARY_COMMANDS=(secondary-agent secondary-scheduler
    secondary-scheduler-status)

# is_secondary_scheduler_enabled - is_service_enabled asks this
function is_secondary_scheduler_enabled {
    [[ ,${ENABLED_SERVICES} =~ ,secondary- ]]
}

# _secondary_bin - Print the directory of our commands
function _secondary_bin {
    get_python_exec_prefix
}

# install_secondary_scheduler - Install the package where Nova and Watcher are
function install_secondary_scheduler {
    setup_develop "$SECONDARY_DIR" lease-api,lease-client,lease-engine
    if is_service_enabled secondary-agent; then
        # DevStack installs libvirt's headers with its libvirt driver.
        pip_install_gr libvirt-python
    fi
    if [[ "$GLOBAL_VENV" == "True" ]]; then
        # openrc puts nothing of the virtual environment on PATH.
        local command
        for command in "${SECONDARY_COMMANDS[@]}"; do
            sudo ln -sf "$(_secondary_bin)/$command" /usr/local/bin
        done
    fi
}

# check_secondary_settings - Stop before anything is changed if a setting or
# a service is wrong
function check_secondary_settings {
    "$(_secondary_bin)/python3" -c '
import sys
from secondary_scheduler.policies import language
try:
    language.parse(sys.argv[1])
except language.PolicyError as problem:
    sys.exit(f"SECONDARY_POLICY in local.conf: {problem}")
' "$SECONDARY_POLICY" || die $LINENO "SECONDARY_POLICY cannot be read"
    if is_service_enabled n-sch &&
            ! is_service_enabled watcher-decision-engine; then
        die $LINENO "secondary_scheduler needs Watcher: enable_plugin" \
            "watcher before enable_plugin secondary_scheduler in local.conf"
    fi
}

# create_secondary_accounts - The agent's account; it needs Placement only.
# The lease service's, which checks tokens, and its endpoint.
#
# Project              User             Roles
# ------------------------------------------------------------------
# SERVICE_PROJECT_NAME secondary-agent  secondary_agent
# SERVICE_PROJECT_NAME secondary-lease  service
#
# The role service, which create_service_user gives, would let the agent do
# there whatever Nova does.
function create_secondary_accounts {
    if is_service_enabled secondary-lease-api; then
        create_service_user secondary-lease
        get_or_create_service secondary-lease secondary-lease \
            "Leases of secondary capacity"
        get_or_create_endpoint secondary-lease "$REGION_NAME" \
            "$SERVICE_PROTOCOL://$SERVICE_HOST/secondary-lease"
    fi
    get_or_create_role secondary_agent
    get_or_create_user secondary-agent "$SERVICE_PASSWORD" \
        "$SERVICE_DOMAIN_NAME"
    get_or_add_user_project_role secondary_agent secondary-agent \
        "$SERVICE_PROJECT_NAME" "$SERVICE_DOMAIN_NAME" "$SERVICE_DOMAIN_NAME"
}

# configure_secondary_placement - What the agent's role may do there
function configure_secondary_placement {
    local policies="$PLACEMENT_CONF_DIR/policy.yaml"

    if ! grep -qs role:secondary_agent "$policies"; then
        cat "$SECONDARY_DIR/etc/placement/policy.yaml" >>"$policies"
    fi
}

# configure_secondary_shared - The file that agent, Nova and Watcher read
function configure_secondary_shared {
    sudo install -d -o "$STACK_USER" -m 755 "$SECONDARY_CONF_DIR"
    install -m 644 \
        "$SECONDARY_DIR/etc/secondary_scheduler/secondary_scheduler.conf.sample" \
        "$SECONDARY_CONF"
    iniset "$SECONDARY_CONF" secondary_scheduler policy "$SECONDARY_POLICY"
}

# configure_secondary_agent - The agent's own file, with its credentials
function configure_secondary_agent {
    install -m 600 \
        "$SECONDARY_DIR/etc/secondary_scheduler/secondary-agent.conf.sample" \
        "$SECONDARY_AGENT_CONF"
    iniset "$SECONDARY_AGENT_CONF" DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    iniset_rpc_backend nova "$SECONDARY_AGENT_CONF"
    iniset "$SECONDARY_AGENT_CONF" secondary_agent host "$(hostname)"
    iniset "$SECONDARY_AGENT_CONF" secondary_agent state_path \
        "$SECONDARY_STATE_PATH"
    configure_keystoneauth "$SECONDARY_AGENT_CONF" secondary-agent placement
    iniset "$SECONDARY_AGENT_CONF" placement region_name "$REGION_NAME"
    # The agent is root, since it writes cgroup files.
    sudo install -d -m 700 "$SECONDARY_STATE_PATH"
}

# configure_secondary_lease_api - The lease service's file, its database, and
# how it is served
function configure_secondary_lease_api {
    local trustee

    install -m 600 \
        "$SECONDARY_DIR/etc/secondary_scheduler/secondary-lease-api.conf.sample" \
        "$SECONDARY_LEASE_CONF"
    iniset "$SECONDARY_LEASE_CONF" DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    iniset "$SECONDARY_LEASE_CONF" secondary_lease_api database_url \
        "$(database_connection_url secondary_lease)"
    # Owners let Watcher make their leases' servers.
    trustee=$(get_or_create_user watcher "$SERVICE_PASSWORD" \
        "$SERVICE_DOMAIN_NAME")
    iniset "$SECONDARY_LEASE_CONF" secondary_lease_api trustee_user_id \
        "$trustee"
    iniset "$SECONDARY_LEASE_CONF" secondary_lease_api region_name \
        "$REGION_NAME"
    configure_keystone_authtoken_middleware "$SECONDARY_LEASE_CONF" \
        secondary-lease
    iniset "$SECONDARY_LEASE_CONF" oslo_middleware \
        enable_proxy_headers_parsing true
    recreate_database secondary_lease
    "$(_secondary_bin)/secondary-scheduler" lease-db sync \
        --config-file "$SECONDARY_LEASE_CONF"
    write_uwsgi_config "$SECONDARY_LEASE_UWSGI_CONF" \
        secondary_scheduler.leases.api.wsgi:application /secondary-lease "" \
        secondary-lease-api
}

# _secondary_share DIR - Have a service read the shared file.
#
# DevStack starts nova-scheduler and Watcher with one --config-file each.
# Beside it oslo.config reads *.conf in the service's default directory.
function _secondary_share {
    sudo install -d -o "$STACK_USER" -m 755 "$1"
    ln -sf "$SECONDARY_CONF" "$1/secondary_scheduler.conf"
}

# configure_secondary_nova - Filter and weighers.
#
# track_instance_changes is left as DevStack wants it: in its default layout
# of cells, computes cannot tell the scheduler of instances.
function configure_secondary_nova {
    local filters

    filters=$(iniget "$NOVA_CONF" filter_scheduler enabled_filters)
    if [[ ,$filters, != *,SecondaryPolicyFilter,* ]]; then
        filters=${filters:-$NOVA_FILTERS},SecondaryPolicyFilter
    fi
    iniset_multiline "$NOVA_CONF" filter_scheduler available_filters \
        nova.scheduler.filters.all_filters \
        secondary_scheduler.nova.filters.all_filters
    iniset "$NOVA_CONF" filter_scheduler enabled_filters "$filters"
    iniset "$NOVA_CONF" filter_scheduler weight_classes \
        secondary_scheduler.nova.weights.all_weighers
    _secondary_share "$NOVA_CONF_DIR/nova-scheduler.conf.d"
}

# configure_secondary_watcher - Collector, applier
function configure_secondary_watcher {
    local collectors

    collectors=$(iniget "$WATCHER_CONF" collector collector_plugins)
    collectors=${collectors:-compute}
    if [[ ,$collectors, != *,secondary,* ]]; then
        iniset "$WATCHER_CONF" collector collector_plugins \
            "$collectors,secondary"
    fi
    iniset "$WATCHER_CONF" watcher_applier workers 16
    iniset "$WATCHER_CONF" watcher_applier workflow_engine secondary
    iniset "$WATCHER_CONF" watcher_workflow_engines.secondary max_workers 8
    iniset "$WATCHER_CONF" watcher_decision_engine \
        continuous_audit_interval 5
    if is_service_enabled secondary-lease-api; then
        iniset "$WATCHER_CONF" secondary_lease_api database_url \
            "$(database_connection_url secondary_lease)"
    fi
    _secondary_share "$WATCHER_CONF_DIR/watcher.conf.d"
}

# _secondary_horizon - Print a path below Horizon's directory
function _secondary_horizon {
    echo "${HORIZON_DIR:-$DEST/horizon}/$1"
}

# configure_secondary_dashboard - Enable the panels. DevStack makes Horizon's
# static files after this phase.
#
# The package is in Horizon's environment, which is that of all services. Its
# extra "dashboard" would get another Horizon from PyPI.
function configure_secondary_dashboard {
    cp "$SECONDARY_DIR"/secondary_dashboard/enabled/_93*.py \
        "$(_secondary_horizon openstack_dashboard/local/enabled)"
}

# configure_secondary_tempest - Options of our tests; DevStack has written the
# rest of the file, and installed the plug-in (TEMPEST_PLUGINS)
function configure_secondary_tempest {
    local leases=False

    if is_service_enabled secondary-lease-api; then
        leases=True
    fi
    iniset "$TEMPEST_CONFIG" service_available secondary_lease "$leases"
    iniset "$TEMPEST_CONFIG" secondary_lease flavor "$SECONDARY_FLAVOR"
    if [[ -z "$SECONDARY_AUDIT_INTERVAL" ]]; then
        iniset "$TEMPEST_CONFIG" secondary_lease engine False
    fi
}

# start_secondary_scheduler - Start the agent, as root, and the lease service
function start_secondary_scheduler {
    local files="--config-file $SECONDARY_CONF"

    files+=" --config-file $SECONDARY_AGENT_CONF"
    if is_service_enabled secondary-agent; then
        run_process secondary-agent \
            "$(_secondary_bin)/secondary-agent run $files" root root
    fi
    if is_service_enabled secondary-lease-api; then
        run_process secondary-lease-api "$(which uwsgi) \
            --procname-prefix secondary-lease \
            --ini $SECONDARY_LEASE_UWSGI_CONF"
    fi
}

# stop_secondary_scheduler - Stop both, and lift the agent's limits
function stop_secondary_scheduler {
    stop_process secondary-lease-api
    if ! is_service_enabled secondary-agent; then
        return
    fi
    stop_process secondary-agent
    if [[ -f "$SECONDARY_AGENT_CONF" ]]; then
        sudo "$(_secondary_bin)/secondary-agent" release \
            --config-file "$SECONDARY_CONF" \
            --config-file "$SECONDARY_AGENT_CONF" || true
    fi
}

# init_secondary_cloud - Enable this cloud's hosts and make flavor and switch
function init_secondary_cloud {
    local bin
    local leases=()

    if is_service_enabled secondary-lease-api; then
        leases=(-p leases=true)
    fi
    bin=$(_secondary_bin)
    export OS_CLOUD=${OS_CLOUD:-devstack-admin}
    SECONDARY_AGGREGATE=$SECONDARY_AGGREGATE PATH=$PATH:$bin \
        "$SECONDARY_DIR/devstack/enable_hosts.sh"
    openstack flavor show "$SECONDARY_FLAVOR" >/dev/null 2>&1 ||
        "$bin/secondary-scheduler" flavor create "$SECONDARY_FLAVOR" \
            --vcpus "$SECONDARY_FLAVOR_VCPUS" \
            --ram "$SECONDARY_FLAVOR_RAM" --disk "$SECONDARY_FLAVOR_DISK"
    if [[ -n "$SECONDARY_AUDIT_INTERVAL" ]] &&
            ! openstack optimize audit show "$SECONDARY_SWITCH" \
                >/dev/null 2>&1; then
        openstack optimize audit create \
            --name "$SECONDARY_SWITCH" --audit_type CONTINUOUS \
            --goal secondary --strategy secondary_workloads \
            --interval "$SECONDARY_AUDIT_INTERVAL" --auto-trigger --force \
            "${leases[@]}"
    fi
}

# _secondary_delete COMMAND... - Delete something of the cloud; say so if that
# fails, which must not keep unstack.sh from going on
function _secondary_delete {
    "$@" || echo "secondary_scheduler: not deleted: $*"
}

# remove_secondary_host HOST - Take a host out of the aggregate, and its
# provider out of Placement
function remove_secondary_host {
    _secondary_delete openstack aggregate remove host "$SECONDARY_AGGREGATE" \
        "$1" -f value -c name
    _secondary_delete "$(_secondary_bin)/secondary-scheduler" \
        host disable "$1" --delete
}

# remove_secondary_cloud - Delete what we have made in the cloud: this node's
# host, and with Nova's API all hosts, flavor, aggregate, accounts, endpoints.
#
# The APIs still run in this phase, but for Watcher's: its plug-in comes
# first. Its database, with the switch, is made anew by the next stack.sh.
# A provider stays while a server is on it.
#
# In a subshell: openrc has set variables of the user demo, which would count
# more than OS_CLOUD.
function remove_secondary_cloud (
    local host

    # shellcheck disable=SC2046  # several names
    unset $(compgen -v OS_)
    export OS_CLOUD=devstack-admin
    if ! timeout 60 openstack token issue -f value -c expires; then
        echo "secondary_scheduler: no Keystone, so nothing of the cloud is" \
            "deleted"
        exit
    fi
    # A compute node that ran unstack.sh before is no member any more.
    for host in $(openstack aggregate show "$SECONDARY_AGGREGATE" -f value \
            -c hosts | tr -d "[],'"); do
        if is_service_enabled n-api || [[ "$host" == "$(hostname)" ]]; then
            remove_secondary_host "$host"
        fi
    done
    if ! is_service_enabled n-api; then
        exit
    fi
    _secondary_delete openstack aggregate delete "$SECONDARY_AGGREGATE"
    _secondary_delete openstack flavor delete "$SECONDARY_FLAVOR"
    # Its endpoints go with it.
    _secondary_delete openstack service delete secondary-lease
    _secondary_delete openstack user delete --domain "$SERVICE_DOMAIN_NAME" \
        secondary-agent secondary-lease
    _secondary_delete openstack role delete secondary_agent
)

# _secondary_clean_watcher - Take our options out of watcher.conf, which
# Watcher's plug-in leaves
function _secondary_clean_watcher {
    local collectors
    local section

    if [[ ! -f "$WATCHER_CONF" ]]; then
        return
    fi
    collectors=$(iniget "$WATCHER_CONF" collector collector_plugins)
    iniset "$WATCHER_CONF" collector collector_plugins \
        "${collectors//,secondary/}"
    inidelete "$WATCHER_CONF" watcher_applier workers
    inidelete "$WATCHER_CONF" watcher_applier workflow_engine
    inidelete "$WATCHER_CONF" watcher_decision_engine continuous_audit_interval
    for section in watcher_workflow_engines.secondary secondary_lease_api; do
        sed -i "/^\[$section\]/,/^\[/{/^\[$section\]/d;/^\[/!d}" \
            "$WATCHER_CONF"
    done
}

# cleanup_secondary_scheduler - Remove what we wrote outside other services'
# files, which DevStack writes anew
function cleanup_secondary_scheduler {
    local command
    local directory
    local directories=("$NOVA_CONF_DIR/nova-scheduler.conf.d"
        "${WATCHER_CONF_DIR:-/etc/watcher}/watcher.conf.d")

    for command in "${SECONDARY_COMMANDS[@]}"; do
        if [[ -L "/usr/local/bin/$command" ]]; then
            sudo rm "/usr/local/bin/$command"
        fi
    done
    if is_service_enabled secondary-lease-api; then
        remove_uwsgi_config "$SECONDARY_LEASE_UWSGI_CONF" secondary-lease-api
        sudo rm -f "$(apache_site_config_for secondary-lease-api)"
        # The second is a note of Debian's a2dissite.
        sudo rm -f /var/run/uwsgi/secondary-lease-api.socket \
            /var/lib/apache2/site/disabled_by_admin/secondary-lease-api
    fi
    sudo rm -rf "$SECONDARY_STATE_PATH" "$SECONDARY_CONF_DIR"
    rm -f "$(_secondary_horizon openstack_dashboard/local/enabled)"/_93*_secondary*.py
    # Horizon's collectstatic has copied these there.
    rm -rf "$(_secondary_horizon static/secondary_dashboard)"
    _secondary_clean_watcher
    for directory in "${directories[@]}"; do
        sudo rm -f "$directory/secondary_scheduler.conf"
        if [[ -d "$directory" ]]; then
            # Another plug-in may have files there.
            sudo rmdir --ignore-fail-on-non-empty "$directory"
        fi
    done
}

if is_service_enabled secondary_scheduler; then
    if [[ "$1" == "stack" && "$2" == "install" ]]; then
        echo_summary "Installing secondary_scheduler"
        install_secondary_scheduler
        check_secondary_settings

    elif [[ "$1" == "stack" && "$2" == "post-config" ]]; then
        echo_summary "Configuring secondary_scheduler"
        configure_secondary_shared
        if is_service_enabled keystone; then
            create_secondary_accounts
        fi
        if is_service_enabled placement-api; then
            configure_secondary_placement
        fi
        if is_service_enabled n-sch; then
            configure_secondary_nova
        fi
        if is_service_enabled watcher-decision-engine watcher-applier; then
            configure_secondary_watcher
        fi
        if is_service_enabled secondary-agent; then
            configure_secondary_agent
        fi
        if is_service_enabled secondary-lease-api; then
            configure_secondary_lease_api
        fi
        if is_service_enabled horizon; then
            configure_secondary_dashboard
        fi

    elif [[ "$1" == "stack" && "$2" == "extra" ]]; then
        echo_summary "Starting secondary_scheduler"
        start_secondary_scheduler

    elif [[ "$1" == "stack" && "$2" == "test-config" ]]; then
        if is_service_enabled n-api placement-api; then
            echo_summary "Enabling secondaries on the hosts"
            init_secondary_cloud
        fi
        if is_service_enabled tempest; then
            configure_secondary_tempest
        fi

    elif [[ "$1" == "unstack" ]]; then
        stop_secondary_scheduler
        remove_secondary_cloud

    elif [[ "$1" == "clean" ]]; then
        cleanup_secondary_scheduler
    fi
fi

# Restore xtrace
# shellcheck disable=SC2086  # it is a command
$_XTRACE_SECONDARY
