# SPDX-License-Identifier: Apache-2.0

"""Add served time and charge of leases, and heartbeats of engines.

Revision ID: 0007
"""

from alembic import op
import sqlalchemy as sa

revision = '0007'
down_revision = '0006'

_ADDED = (
    ('leases', sa.Column('served', sa.BigInteger(), nullable=False,
                         server_default='0')),
    ('leases', sa.Column('charge', sa.Double())),
    ('engines', sa.Column('looked_at', sa.DateTime())),
    ('engines', sa.Column('trouble', sa.Text())),
)


def upgrade() -> None:
    for table, column in _ADDED:
        op.add_column(table, column)


def downgrade() -> None:
    for table, column in reversed(_ADDED):
        op.drop_column(table, column.name)
