# SPDX-License-Identifier: Apache-2.0

"""Allow leases and slots without an end.

Revision ID: 0005
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.sql.type_api import TypeEngine

revision = '0005'
down_revision = '0004'


def _replace_column(table: str, column: str, type_: TypeEngine[object],
                    default: str | None) -> None:
    """Make a column nullable, or give it a default.

    SQLite cannot change a column. A batch operation of Alembic would recreate
    the table, and dropping the old one would delete all rows that refer to it.
    """
    other = f'{column}_0005'
    op.add_column(table, sa.Column(other, type_, nullable=default is None,
                                   server_default=default))
    rows = sa.table(table, sa.column(column), sa.column(other))
    op.execute(rows.update().values({other: rows.c[column]}))
    op.drop_column(table, column)
    op.alter_column(table, other, new_column_name=column,
                    existing_type=type_, existing_nullable=default is None,
                    existing_server_default=default)


def upgrade() -> None:
    _replace_column('leases', 'duration', sa.BigInteger(), None)
    _replace_column('slots', 'end', sa.DateTime(), None)


def downgrade() -> None:
    """Delete leases without an end; their servers are not touched."""
    for table, column in (('leases', 'duration'), ('slots', 'end')):
        rows = sa.table(table, sa.column(column))
        op.execute(rows.delete().where(rows.c[column].is_(None)))
    _replace_column('slots', 'end', sa.DateTime(), '1970-01-01 00:00:00')
    _replace_column('leases', 'duration', sa.BigInteger(), '0')
