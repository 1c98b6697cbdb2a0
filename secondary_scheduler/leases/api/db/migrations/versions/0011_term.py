# SPDX-License-Identifier: Apache-2.0

"""Add the term of the leadership that has read the leases last.

User data of leases that are over are deleted: they may hold secrets.

Revision ID: 0011
"""

from alembic import op
import sqlalchemy as sa

revision = '0011'
down_revision = '0010'

_FINAL = ('rejected', 'rejected-by-user', 'done', 'cancelled', 'failed')


def upgrade() -> None:
    op.add_column('engines', sa.Column(
        'term', sa.BigInteger(), nullable=False, server_default='0'))
    secrets, sets, leases = (
        sa.table(name, *map(sa.column, columns)) for name, columns in (
            ('user_data', ('node_set_id',)),
            ('node_sets', ('id', 'lease_id')), ('leases', ('id', 'state'))))
    op.execute(sa.delete(secrets).where(secrets.c.node_set_id.in_(
        sa.select(sets.c.id).join(leases, leases.c.id == sets.c.lease_id)
        .where(leases.c.state.in_(_FINAL)))))


def downgrade() -> None:
    op.drop_column('engines', 'term')
