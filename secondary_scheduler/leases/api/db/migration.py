"""The tables' versions: Alembic, without a file of its own to configure."""

import pathlib
import typing

from alembic import autogenerate, command, config, migration
import sqlalchemy as sa

from secondary_scheduler.leases.api.db import models


def _configuration(connection: sa.Connection) -> config.Config:
    found = config.Config()
    found.set_main_option('script_location', str(
        pathlib.Path(__file__).parent / 'migrations').replace('%', '%%'))
    found.attributes['connection'] = connection
    return found


def sync(engine: sa.Engine, revision: str = 'head') -> None:
    """Make the tables, or upgrade them, to a version."""
    with engine.begin() as connection:
        command.upgrade(_configuration(connection), revision)


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Take the tables back to an older version; what is newer is lost."""
    with engine.begin() as connection:
        command.downgrade(_configuration(connection), revision)


def version(engine: sa.Engine) -> str | None:
    """Return the version that the tables have; None if there are none."""
    with engine.connect() as connection:
        return migration.MigrationContext.configure(
            connection).get_current_revision()


def differences(engine: sa.Engine) -> list[typing.Any]:
    """Return in what the tables differ from the models, as Alembic says."""
    with engine.connect() as connection:
        context = migration.MigrationContext.configure(
            connection, opts={'compare_type': True})
        return list(autogenerate.compare_metadata(
            context, models.Base.metadata))
