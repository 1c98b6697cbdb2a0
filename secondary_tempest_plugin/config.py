# SPDX-License-Identifier: Apache-2.0

"""Options in tempest.conf."""

from oslo_config import cfg

service_option = cfg.BoolOpt(
    'secondary_lease',
    default=True,
    help="""
Whether the lease service is in the catalog.  Without it all tests of leases
are skipped.
""")

lease_group = cfg.OptGroup(
    'secondary_lease', title='Lease service of secondary_scheduler')
LEASE_OPTIONS: list[cfg.Opt] = [
    cfg.StrOpt(
        'catalog_type',
        default='secondary-lease',
        help="""
Service type in the catalog.
"""),
    cfg.StrOpt(
        'endpoint_type',
        default='public',
        choices=['public', 'admin', 'internal',
                 'publicURL', 'adminURL', 'internalURL'],
        help="""
Interface of the endpoint in the catalog.
"""),
    cfg.StrOpt(
        'region',
        default='',
        help="""
Region of the endpoint; empty: ``[identity] region``.
"""),
    cfg.StrOpt(
        'min_microversion',
        default='1.0',
        help="""
Oldest microversion to test.
"""),
    cfg.StrOpt(
        'max_microversion',
        default='latest',
        help="""
Newest microversion to test.  Tests that need a newer one are skipped; set it
to test an older release of the service.
"""),
    cfg.BoolOpt(
        'engine',
        default=True,
        help="""
Whether an engine runs leases: an audit of Watcher with ``leases=true``.
Without it all tests that need a decision about a lease are skipped.
"""),
    cfg.IntOpt(
        'decision_timeout',
        default=60,
        min=1,
        help="""
Seconds in which the engine decides about a lease or answers a quote.
"""),
    cfg.IntOpt(
        'room_timeout',
        default=600,
        min=1,
        help="""
Seconds in which the cloud has room for a lease of two, for instance after its
services were started.
"""),
    cfg.StrOpt(
        'flavor',
        default='secondary',
        help="""
Name or id of a public flavor of secondaries
("secondary-scheduler flavor create").
"""),
    cfg.StrOpt(
        'image',
        default='',
        help="""
Name or id of a public image for secondaries and for load; empty:
``[compute] image_ref``.  It has to run the user data of scenarios (a shell
script, as root), as images with cloud-init and CirrOS do, unless it counts its
work by itself.
"""),
    cfg.StrOpt(
        'network',
        default='',
        help="""
Network of all servers: "none", "auto", or the name or id of a network that
all projects can use.  Empty: the network that Tempest makes for the project
(``[auth] create_isolated_networks``), or "auto" if it makes none.
"""),
]

scenario_group = cfg.OptGroup(
    'secondary_scenario', title='Scenarios of secondary_scheduler')
SCENARIO_OPTIONS: list[cfg.Opt] = [
    cfg.BoolOpt(
        'load',
        default=True,
        help="""
Whether scenarios may put load on hosts.  The load is that of ordinary
instances (``primary_flavor``), with all of their virtual CPUs busy.
"""),
    cfg.StrOpt(
        'primary_flavor',
        default='',
        help="""
Name or id of the flavor of the instances that are the load; no secondary one.
Empty: ``[compute] flavor_ref``.
"""),
    cfg.IntOpt(
        'primaries_per_host',
        default=1,
        min=1,
        help="""
Instances of ``primary_flavor`` that make a host too busy: with all of their
virtual CPUs busy the policy of the host is violated, and secondaries have to
leave it.  With "cpu <= 80%" and a flavor of 4 virtual CPUs a host of 16 CPUs
needs 4.
"""),
    cfg.IntOpt(
        'max_loaded_hosts',
        default=3,
        min=1,
        help="""
Largest number of hosts that a scenario loads.  The scenario in which every
host is too busy is skipped on clouds where more hosts run secondaries.
"""),
    cfg.BoolOpt(
        'config_drive',
        default=False,
        help="""
Whether servers get their user data by a config drive, for clouds without a
metadata service.
"""),
    cfg.IntOpt(
        'boot_timeout',
        default=300,
        min=1,
        help="""
Seconds in which a server boots and begins its work.
"""),
    cfg.IntOpt(
        'preemption_timeout',
        default=300,
        min=1,
        help="""
Seconds from the begin of a load until secondaries are throttled, and until
they have left the host.  The time limit of the policy is a part of it.
"""),
    cfg.IntOpt(
        'return_timeout',
        default=600,
        min=1,
        help="""
Seconds from the end of a load until all secondaries run again.
"""),
    cfg.IntOpt(
        'reservation_notice',
        default=120,
        min=1,
        help="""
Seconds between the request for a reservation and its start: enough for an
image to reach a host and a server to boot, and for the admission policy
"notice".
"""),
    cfg.IntOpt(
        'reservation_tolerance',
        default=15,
        min=1,
        help="""
Seconds by which the servers of a reservation may run before or after its
start.
"""),
]

GROUPS = ((lease_group, LEASE_OPTIONS), (scenario_group, SCENARIO_OPTIONS))


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options by group, for oslo.config's tools."""
    return [(cfg.OptGroup('service_available'), [service_option]), *GROUPS]
