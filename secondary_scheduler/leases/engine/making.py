"""An engine, made as the configuration says."""

import socket
import time

from oslo_config import cfg

from secondary_scheduler.leases import settings
from secondary_scheduler.leases.api import events
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.leases.api.db.store import LeaseStore
from secondary_scheduler.leases.engine.engine import Engine, Options
from secondary_scheduler.leases.engine.values import LeaseCloud


def engine(conf: cfg.ConfigOpts, cloud: LeaseCloud) -> Engine:
    """Return an engine for the leases of the configured database."""
    options = conf.secondary_leases
    database = Database(conf)
    announce = events.announcer(
        conf, f'secondary-lease-engine.{socket.gethostname()}')
    return Engine(
        database, LeaseStore(database, announce), cloud, Options(
            settings.from_options(options), boot_s=options.boot_time,
            lead=options.order_lead, notice=options.notice,
            window=options.capacity_window, risk=options.capacity_risk,
            fetch_s=options.image_fetch_time, give_up=options.give_up_after),
        time.time)
