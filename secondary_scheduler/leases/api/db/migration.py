# SPDX-License-Identifier: Apache-2.0

"""Versions of the tables (Alembic, configured without a file)."""

import pathlib

from alembic import command, config, migration
import sqlalchemy as sa


def _configuration(connection: sa.Connection) -> config.Config:
    found = config.Config()
    found.set_main_option('script_location', str(
        pathlib.Path(__file__).parent / 'migrations').replace('%', '%%'))
    found.attributes['connection'] = connection
    return found


def sync(engine: sa.Engine, revision: str = 'head') -> None:
    """Create the tables, or upgrade them to a version."""
    with engine.begin() as connection:
        command.upgrade(_configuration(connection), revision)


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Downgrade the tables to an older version; newer data are lost."""
    with engine.begin() as connection:
        command.downgrade(_configuration(connection), revision)


def version(engine: sa.Engine) -> str | None:
    """Return the version of the tables, None if there are none."""
    with engine.connect() as connection:
        return migration.MigrationContext.configure(
            connection).get_current_revision()
