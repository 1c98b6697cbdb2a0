# SPDX-License-Identifier: Apache-2.0

"""Add the term of the leadership that has read the leases last.

Revision ID: 0011
"""

from alembic import op
import sqlalchemy as sa

revision = '0011'
down_revision = '0010'


def upgrade() -> None:
    op.add_column('engines', sa.Column(
        'term', sa.BigInteger(), nullable=False, server_default='0'))


def downgrade() -> None:
    op.drop_column('engines', 'term')
