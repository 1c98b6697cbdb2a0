# SPDX-License-Identifier: Apache-2.0

"""Handlers of the service, one module per resource; all routes."""

from secondary_scheduler.leases.api.resources import (
    accounting,
    actions,
    capacity,
    description,
    events,
    leases,
    operations,
    quota,
    quotes,
    timeline,
    trust,
    versions,
)

TABLE = (*versions.ROUTES, *description.ROUTES, *leases.ROUTES,
         *actions.ROUTES, *timeline.ROUTES, *events.ROUTES, *quota.ROUTES,
         *quotes.ROUTES, *capacity.ROUTES, *operations.ROUTES,
         *accounting.ROUTES, *trust.ROUTES)
