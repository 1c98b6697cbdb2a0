# SPDX-License-Identifier: Apache-2.0

"""Add tables of leases, their events, and the plan.

Revision ID: 0001
"""

import typing

from alembic import op
import sqlalchemy as sa

revision = '0001'
down_revision = None

_OPTIONS: dict[str, typing.Any] = {
    'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin'}
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), 'sqlite')


def _key() -> sa.Column[int]:
    return sa.Column('id', _NUMBER, autoincrement=True, nullable=False)


def _table(name: str, *parts: sa.schema.SchemaItem) -> None:
    op.create_table(name, *parts, **_OPTIONS)


def _of(table: str, column: str, other: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [column], [f'{other}.id'], name=f'fk_{table}_{column}',
        ondelete='CASCADE')


def upgrade() -> None:
    _table(
        'leases', _key(),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('project_id', sa.String(64), nullable=False),
        sa.Column('user_id', sa.String(64), nullable=False),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('start', sa.DateTime()),
        sa.Column('deadline', sa.DateTime()),
        sa.Column('duration', sa.BigInteger(), nullable=False),
        sa.Column('immediate', sa.Boolean(), nullable=False),
        sa.Column('preemptible', sa.Boolean(), nullable=False),
        sa.Column('max_rate', sa.Double()),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('hold', sa.Boolean(), nullable=False),
        sa.Column('wanted_end', sa.Boolean(), nullable=False),
        sa.Column('reason', sa.Text(), nullable=False),
        sa.Column('price', sa.Double()),
        sa.Column('created_at', sa.DateTime(), nullable=False),
        sa.Column('updated_at', sa.DateTime(), nullable=False),
        sa.Column('revision', sa.Integer(), nullable=False),
        sa.Column('token', sa.String(64)),
        sa.Column('fingerprint', sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_leases'),
        sa.UniqueConstraint('uuid', name='uq_leases_uuid'),
        sa.UniqueConstraint('project_id', 'token',
                            name='uq_leases_project_id_token'))
    op.create_index('ix_leases_project_id_state', 'leases',
                    ['project_id', 'state'])
    op.create_index('ix_leases_state', 'leases', ['state'])
    _table(
        'node_sets', _key(),
        sa.Column('lease_id', _NUMBER, nullable=False),
        sa.Column('number', sa.Integer(), nullable=False),
        sa.Column('flavor', sa.String(255), nullable=False),
        sa.Column('image', sa.String(255)),
        sa.Column('network', sa.String(255)),
        sa.Column('key_name', sa.String(255)),
        sa.PrimaryKeyConstraint('id', name='pk_node_sets'),
        _of('node_sets', 'lease_id', 'leases'))
    _table(
        'servers', _key(),
        sa.Column('lease_id', _NUMBER, nullable=False),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_servers'),
        sa.UniqueConstraint('uuid', name='uq_servers_uuid'),
        _of('servers', 'lease_id', 'leases'))
    _table(
        'events', _key(),
        sa.Column('lease_id', _NUMBER, nullable=False),
        sa.Column('time', sa.DateTime(), nullable=False),
        sa.Column('kind', sa.String(32), nullable=False),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('text', sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_events'),
        _of('events', 'lease_id', 'leases'))
    _table(
        'hosts', _key(),
        sa.Column('name', sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_hosts'),
        sa.UniqueConstraint('name', name='uq_hosts_name'))
    _table(
        'slots', _key(),
        sa.Column('lease_id', _NUMBER, nullable=False),
        sa.Column('begin', sa.DateTime(), nullable=False),
        sa.Column('end', sa.DateTime(), nullable=False),
        sa.Column('what', sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_slots'),
        _of('slots', 'lease_id', 'leases'))
    _table(
        'slot_hosts',
        sa.Column('slot_id', _NUMBER, nullable=False),
        sa.Column('host_id', _NUMBER, nullable=False),
        sa.Column('nodes', sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint('slot_id', 'host_id', name='pk_slot_hosts'),
        _of('slot_hosts', 'slot_id', 'slots'),
        _of('slot_hosts', 'host_id', 'hosts'))
    for table in ('node_sets', 'servers', 'events', 'slots'):
        op.create_index(f'ix_{table}_lease_id', table, ['lease_id'])
    op.create_index('ix_slot_hosts_host_id', 'slot_hosts', ['host_id'])
    _table(
        'projects',
        sa.Column('project_id', sa.String(64), nullable=False),
        sa.Column('leases', sa.Integer()),
        sa.Column('nodes', sa.Integer()),
        sa.Column('made', sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint('project_id', name='pk_projects'))


def downgrade() -> None:
    for table in ('projects', 'slot_hosts', 'slots', 'hosts', 'events',
                  'servers', 'node_sets', 'leases'):
        op.drop_table(table)
