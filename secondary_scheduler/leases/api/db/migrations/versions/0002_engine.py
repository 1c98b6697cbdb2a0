# SPDX-License-Identifier: Apache-2.0

"""Add records of the engine, and trusts.

Revision ID: 0002
"""

import typing

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0002'
down_revision = '0001'

_OPTIONS: dict[str, typing.Any] = {
    'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin'}
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), 'sqlite')


def upgrade() -> None:
    op.add_column('leases', sa.Column('trust_id', sa.String(64)))
    op.create_table(
        'schedules',
        sa.Column('lease_id', _NUMBER, nullable=False),
        sa.Column('document', sa.Text().with_variant(
            mysql.MEDIUMTEXT(), 'mysql', 'mariadb'), nullable=False),
        sa.PrimaryKeyConstraint('lease_id', name='pk_schedules'),
        sa.ForeignKeyConstraint(
            ['lease_id'], ['leases.id'], name='fk_schedules_lease_id_leases',
            ondelete='CASCADE'),
        **_OPTIONS)
    engines = op.create_table(
        'engines',
        sa.Column('id', _NUMBER, autoincrement=True, nullable=False),
        sa.Column('passes', sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_engines'),
        **_OPTIONS)
    op.bulk_insert(engines, [{'id': 1, 'passes': 0}])


def downgrade() -> None:
    op.drop_table('engines')
    op.drop_table('schedules')
    op.drop_column('leases', 'trust_id')
