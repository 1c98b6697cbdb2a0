# SPDX-License-Identifier: Apache-2.0

"""Construction of the lease engine from the options of Watcher's service.

It imports the engine, of which the requirements come with the extra
``lease-engine``.
"""

import socket
import time

from oslo_config import cfg

from secondary_scheduler.leases import settings
from secondary_scheduler.leases.api import events
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.leases.api.db.store import LeaseStore
from secondary_scheduler.leases.engine.engine import Engine, EngineOptions
from secondary_scheduler.watcher.cluster_state import ClusterState
from secondary_scheduler.watcher.leases.action_plans import LeaseActionPlans
from secondary_scheduler.watcher.leases.cloud import OpenStackLeaseCloud


def build_engine(conf: cfg.ConfigOpts, seen: ClusterState
                 ) -> tuple[Engine, OpenStackLeaseCloud]:
    """Return an engine for the leases of the configured database.

    :returns: the engine, and the cloud on which it runs the leases.
    """
    options = conf.secondary_leases
    database = Database(conf)
    announce = events.announcer(
        conf, f'secondary-lease-engine.{socket.gethostname()}')
    cloud = OpenStackLeaseCloud(seen, LeaseActionPlans(seen.history))
    return Engine(
        database, LeaseStore(database, announce), cloud, EngineOptions(
            settings.from_options(options), boot_s=options.boot_time,
            lead=options.action_plan_lead_time, notice=options.notice,
            window=options.capacity_window, risk=options.capacity_risk,
            learning=options.capacity_learning_time,
            fetch_s=options.image_fetch_time, give_up=options.give_up_after,
            delete_unknown=options.delete_unknown_servers),
        time.time), cloud
