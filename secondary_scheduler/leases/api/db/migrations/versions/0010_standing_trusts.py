# SPDX-License-Identifier: Apache-2.0

"""Add standing trusts of users in projects.

Revision ID: 0010
"""

import typing

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0010'
down_revision = '0009'

_OPTIONS: dict[str, typing.Any] = {
    'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin'}
#: ``trust_id`` of a lease whose servers are made by the standing trust.
_STANDING = 'standing'


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


def downgrade() -> None:
    """Give each lease the trust of its owner as its own.

    An older engine fails a lease whose owner has none: the mark of the
    standing trust is no trust of Keystone.
    """
    trusts = sa.table('standing_trusts', *map(
        sa.column, ('project_id', 'user_id', 'trust_id')))
    leases = sa.table('leases', *map(sa.column, (
        'project_id', 'user_id', 'trust_id')))
    found = sa.select(trusts.c.trust_id).where(
        trusts.c.project_id == leases.c.project_id,
        trusts.c.user_id == leases.c.user_id).scalar_subquery()
    op.execute(sa.update(leases).where(leases.c.trust_id == _STANDING).values(
        trust_id=sa.func.coalesce(found, _STANDING)))
    op.drop_table('standing_trusts')
