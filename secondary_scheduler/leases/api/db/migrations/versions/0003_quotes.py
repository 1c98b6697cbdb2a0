# SPDX-License-Identifier: Apache-2.0

"""Add quotes, and the next possible start of rejected leases.

Revision ID: 0003
"""

import typing

from alembic import op
import sqlalchemy as sa

revision = '0003'
down_revision = '0002'

_OPTIONS: dict[str, typing.Any] = {
    'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin'}
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), 'sqlite')


def upgrade() -> None:
    op.add_column('leases', sa.Column('next_start', sa.DateTime()))
    op.create_table(
        'quotes',
        sa.Column('id', _NUMBER, autoincrement=True, nullable=False),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('project_id', sa.String(64), nullable=False),
        sa.Column('user_id', sa.String(64), nullable=False),
        sa.Column('nodes', sa.Text(), nullable=False),
        sa.Column('start', sa.DateTime()),
        sa.Column('deadline', sa.DateTime()),
        sa.Column('duration', sa.BigInteger(), nullable=False),
        sa.Column('immediate', sa.Boolean(), nullable=False),
        sa.Column('preemptible', sa.Boolean(), nullable=False),
        sa.Column('max_rate', sa.Double()),
        sa.Column('created_at', sa.DateTime(), nullable=False),
        sa.Column('expires_at', sa.DateTime(), nullable=False),
        sa.Column('accepted', sa.Boolean()),
        sa.Column('rate', sa.Double()),
        sa.Column('price', sa.Double()),
        sa.Column('begin', sa.DateTime()),
        sa.Column('reason', sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_quotes'),
        sa.UniqueConstraint('uuid', name='uq_quotes_uuid'),
        **_OPTIONS)
    op.create_index('ix_quotes_project_id', 'quotes', ['project_id'])
    op.create_index('ix_quotes_expires_at', 'quotes', ['expires_at'])


def downgrade() -> None:
    op.drop_table('quotes')
    op.drop_column('leases', 'next_start')
