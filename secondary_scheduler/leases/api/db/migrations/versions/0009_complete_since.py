# SPDX-License-Identifier: Apache-2.0

"""Add the time since which the database lacks no lease.

Revision ID: 0009
"""

from alembic import op
import sqlalchemy as sa

revision = '0009'
down_revision = '0008'


def upgrade() -> None:
    op.add_column('engines', sa.Column('complete_since', sa.DateTime()))


def downgrade() -> None:
    op.drop_column('engines', 'complete_since')
