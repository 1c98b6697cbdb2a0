# SPDX-License-Identifier: Apache-2.0

"""Alembic environment; ``db.migration`` provides the connection."""

from alembic import context

from secondary_scheduler.leases.api.db import (
    models,
    record_models,
    standing_trusts,
)

#: Modules with tables.
TABLES = (models, record_models, standing_trusts)

context.configure(connection=context.config.attributes['connection'],
                  target_metadata=models.Base.metadata,
                  render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
