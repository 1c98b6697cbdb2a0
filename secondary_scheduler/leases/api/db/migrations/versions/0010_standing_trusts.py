# SPDX-License-Identifier: Apache-2.0

"""Add standing trusts of users in projects.

Revision ID: 0010
"""

import typing

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0010'
down_revision = '0008'

_OPTIONS: dict[str, typing.Any] = {
    'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin'}
#: Id of no trust, with which an older engine fails a lease.
_NO_TRUST = 'none'


def upgrade() -> None:
    op.create_table(
        'standing_trusts',
        sa.Column('id', sa.BigInteger().with_variant(
            sa.Integer(), 'sqlite'), nullable=False, autoincrement=True),
        sa.Column('project_id', sa.String(64), nullable=False),
        sa.Column('user_id', sa.String(64), nullable=False),
        sa.Column('trust_id', sa.String(64), nullable=False),
        sa.Column('roles', sa.Text().with_variant(
            mysql.MEDIUMTEXT(), 'mysql', 'mariadb')),
        sa.Column('created_at', sa.DateTime(), nullable=False),
        sa.Column('expires_at', sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_standing_trusts'),
        sa.UniqueConstraint(
            'project_id', 'user_id',
            name='uq_standing_trusts_project_id_user_id'),
        **_OPTIONS)
    op.add_column('leases', sa.Column(
        'standing_trust', sa.Boolean(), nullable=False,
        server_default=sa.false()))


def downgrade() -> None:
    """Give each lease the trust of its owner as its own.

    A lease without a trust gets an invalid one: without any, an older engine
    would make its servers in the project of Watcher's user.
    """
    trusts = sa.table('standing_trusts', *map(
        sa.column, ('project_id', 'user_id', 'trust_id')))
    leases = sa.table('leases', *map(sa.column, (
        'project_id', 'user_id', 'trust_id', 'standing_trust')))
    found = sa.select(trusts.c.trust_id).where(
        trusts.c.project_id == leases.c.project_id,
        trusts.c.user_id == leases.c.user_id).scalar_subquery()
    op.execute(sa.update(leases).where(
        leases.c.standing_trust == sa.true(), leases.c.trust_id.is_(None)
    ).values(trust_id=sa.func.coalesce(found, _NO_TRUST)))
    op.drop_column('leases', 'standing_trust')
    op.drop_table('standing_trusts')
