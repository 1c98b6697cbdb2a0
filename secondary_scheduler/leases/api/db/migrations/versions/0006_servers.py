# SPDX-License-Identifier: Apache-2.0

"""Add properties of servers, user data, and unverified fields.

Revision ID: 0006
"""

import typing

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0006'
down_revision = '0005'

_OPTIONS: dict[str, typing.Any] = {
    'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin'}


def _document(name: str, nullable: bool) -> sa.Column[str]:
    return sa.Column(name, sa.Text().with_variant(
        mysql.MEDIUMTEXT(), 'mysql', 'mariadb'), nullable=nullable)


def upgrade() -> None:
    op.add_column('leases', _document('unverified', True))
    op.add_column('node_sets', _document('server', True))
    op.add_column('node_sets', sa.Column(
        'has_user_data', sa.Boolean, nullable=False,
        server_default=sa.false()))
    op.create_table(
        'user_data',
        sa.Column('node_set_id', sa.BigInteger().with_variant(
            sa.Integer(), 'sqlite'), nullable=False),
        _document('content', False),
        sa.PrimaryKeyConstraint('node_set_id', name='pk_user_data'),
        sa.ForeignKeyConstraint(
            ['node_set_id'], ['node_sets.id'], ondelete='CASCADE',
            name='fk_user_data_node_set_id'),
        **_OPTIONS)


def downgrade() -> None:
    """Forget the properties; servers that run keep theirs."""
    op.drop_table('user_data')
    for name in ('has_user_data', 'server'):
        op.drop_column('node_sets', name)
    op.drop_column('leases', 'unverified')
