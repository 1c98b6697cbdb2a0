# SPDX-License-Identifier: Apache-2.0

"""Add learned state of the engine.

Revision ID: 0004
"""

import typing

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0004'
down_revision = '0003'

_OPTIONS: dict[str, typing.Any] = {
    'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin'}


def upgrade() -> None:
    op.create_table(
        'learned',
        sa.Column('name', sa.String(64), nullable=False),
        sa.Column('document', sa.Text().with_variant(
            mysql.MEDIUMTEXT(), 'mysql', 'mariadb'), nullable=False),
        sa.PrimaryKeyConstraint('name', name='pk_learned'),
        **_OPTIONS)


def downgrade() -> None:
    op.drop_table('learned')
