"""``egressd cluster``: the site whose configuration this box shares."""

from __future__ import annotations

import os
from pathlib import Path

import click

from egressd.cli import config_option
from egressd.model.errors import Failed
from egressd.store.files import prepare_directory

owner_option = click.option(
    "--owner",
    required=True,
    metavar="CONNECTION",
    help="How the owner of the database connects, as libpq takes it, for example"
    ' "host=/run/postgresql dbname=egressd user=postgres".',
)


@click.group()
def cluster() -> None:
    """The site: the configuration that several boxes have in common, in PostgreSQL."""


@cluster.command()
@owner_option
@click.option(
    "--role",
    default="egressd",
    show_default=True,
    help="The role that this box logs in as. It is made if it is not there.",
)
@config_option
def init(owner: str, role: str, path: Path | None) -> None:
    """Make the site that [cluster] names in the database it names, with this box as its member.

    The tables, the site, the member, its role and the site's key are made as far as they are not
    there. The next start of the service puts this box's configuration into the site.
    """
    from egressd.app import accounts, config, site
    from egressd.store.postgres import schema
    from egressd.store.postgres.connection import check_conninfo
    from egressd.store.sealing import SiteSeal

    settings = config.load(path)
    site.require_site(settings)
    check_conninfo(settings.cluster.database)
    if os.geteuid():
        raise Failed("make a site", "only root may, since the key belongs to the service's user")
    user = accounts.account(settings.api.user)
    prepare_directory(settings.api_data, (user.pw_uid, user.pw_gid))
    key = site.ensure_site_key(settings)
    schema.migrate(owner)
    schema.add_member(
        owner,
        site=settings.cluster.site,
        key_id=SiteSeal(key).key_id,
        member=settings.cluster.member,
        role=role,
    )
    click.echo(
        f"{settings.cluster.member} is a member of the site {settings.cluster.site}:"
        " restart the service"
    )


@cluster.command()
@owner_option
def migrate(owner: str) -> None:
    """Bring the database's tables to the schema of this version of egressd."""
    from egressd.store.postgres import schema

    schema.migrate(owner)
    click.echo("the database has the newest schema")
