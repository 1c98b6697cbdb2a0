# SPDX-License-Identifier: Apache-2.0

"""Handlers of the service, one module per resource; all routes."""

from secondary_scheduler.leases.api.resources import (
    actions,
    description,
    events,
    leases,
    quota,
    quotes,
    timeline,
    versions,
)

TABLE = (*versions.ROUTES, *description.ROUTES, *leases.ROUTES,
         *actions.ROUTES, *timeline.ROUTES, *events.ROUTES, *quota.ROUTES,
         *quotes.ROUTES)
