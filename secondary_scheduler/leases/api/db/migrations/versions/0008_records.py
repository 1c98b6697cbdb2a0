# SPDX-License-Identifier: Apache-2.0

"""Add records of hosts, operations and served time by day.

Revision ID: 0008
"""

import typing

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0008'
down_revision = '0007'

_OPTIONS: dict[str, typing.Any] = {
    'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin'}
_TABLES = ('served_days', 'recorded_operations', 'recorded_plans',
           'host_states')


def _number(name: str, **options: typing.Any) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger().with_variant(
        sa.Integer(), 'sqlite'), nullable=False, **options)


def _document() -> sa.Column[str]:
    return sa.Column('document', sa.Text().with_variant(
        mysql.MEDIUMTEXT(), 'mysql', 'mariadb'))


def _create_index(table: str, *columns: str) -> None:
    op.create_index(f'ix_{table}_{"_".join(columns)}', table, list(columns))


def upgrade() -> None:
    op.create_table(
        'host_states',
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('observed_at', sa.DateTime(), nullable=False),
        sa.Column('reported_at', sa.DateTime()),
        _document(),
        sa.PrimaryKeyConstraint('name', name='pk_host_states'),
        **_OPTIONS)
    op.create_table(
        'recorded_plans',
        _number('id', autoincrement=True),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('request', sa.String(32), nullable=False),
        sa.Column('state', sa.String(20), nullable=False),
        sa.Column('created_at', sa.DateTime(), nullable=False),
        sa.Column('updated_at', sa.DateTime()),
        _document(),
        sa.PrimaryKeyConstraint('id', name='pk_recorded_plans'),
        sa.UniqueConstraint('uuid', name='uq_recorded_plans_uuid'),
        **_OPTIONS)
    _create_index('recorded_plans', 'created_at')
    op.create_table(
        'recorded_operations',
        _number('id', autoincrement=True),
        _number('plan_id'),
        sa.Column('server_id', sa.String(36)),
        sa.Column('source', sa.String(255)),
        sa.Column('target', sa.String(255)),
        sa.Column('began_at', sa.DateTime()),
        sa.Column('ended_at', sa.DateTime()),
        _document(),
        sa.PrimaryKeyConstraint('id', name='pk_recorded_operations'),
        sa.ForeignKeyConstraint(
            ['plan_id'], ['recorded_plans.id'], ondelete='CASCADE',
            name='fk_recorded_operations_plan_id'),
        **_OPTIONS)
    for column in ('plan_id', 'server_id', 'source', 'target'):
        _create_index('recorded_operations', column)
    op.create_table(
        'served_days',
        _number('id', autoincrement=True),
        sa.Column('day', sa.Date(), nullable=False),
        sa.Column('lease_uuid', sa.String(36), nullable=False),
        sa.Column('project_id', sa.String(64), nullable=False),
        sa.Column('served', sa.BigInteger(), nullable=False),
        sa.Column('node_seconds', sa.BigInteger(), nullable=False),
        sa.Column('charge', sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_served_days'),
        sa.UniqueConstraint('day', 'lease_uuid',
                            name='uq_served_days_day_lease_uuid'),
        **_OPTIONS)
    _create_index('served_days', 'project_id', 'day')


def downgrade() -> None:
    """Forget the records; leases are left as they are."""
    for table in _TABLES:
        op.drop_table(table)
