"""``egressd cluster``: the site whose configuration this box shares."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from egressd.cli import config_option
from egressd.cli.confirmation import confirm
from egressd.cli.members import show_members
from egressd.cli.output import json_option
from egressd.model.errors import Failed, Invalid
from egressd.store.files import prepare_directory, replace_durably

if TYPE_CHECKING:
    from egressd.app.config import Config

OWNER_FILE: Final = "owner"
"""The file in the authority's folder that has the owner's connection string."""

_TOKEN_MAX: Final = 1 << 16
"""Characters of a token at most, far more than one has."""

owner_option = click.option(
    "--owner",
    metavar="CONNECTION",
    help="How the owner of the database connects, as libpq takes it, for example"
    ' "host=/run/postgresql dbname=egressd user=postgres". Default: what init was given.',
)
write_option = click.option(
    "--write", is_flag=True, help="Write the section into the configuration file, too."
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
@click.option(
    "--local",
    "is_local",
    is_flag=True,
    help="Set this machine's own PostgreSQL up, Debian's package, instead of --owner.",
)
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="HOST",
    help="With --local: an address or name by which other boxes reach this one; may be repeated.",
)
@click.option("--site", "site_name", default="", help="With --local: the site's name.")
@click.option(
    "--socket",
    "sockets",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --local: the folder of PostgreSQL's socket. Default: /run/postgresql.",
)
@click.option("--port", type=int, default=5432, help="With --local: PostgreSQL's port.")
@write_option
@config_option
def init(
    *,
    owner: str | None,
    role: str,
    is_local: bool,
    addresses: tuple[str, ...],
    site_name: str,
    sockets: Path | None,
    port: int,
    write: bool,
    path: Path | None,
) -> None:
    """Make a site, with this box as its first member.

    With --local, this machine's PostgreSQL becomes the site's database; otherwise [cluster] names
    site and database, and --owner connects. The tables, the site, the member, its role, the site's
    key and its authority for certificates are made as far as they are not there. The next start of
    the service puts this box's configuration into the site.
    """
    from dataclasses import replace

    from egressd.app import accounts, config, member_files, site, site_key
    from egressd.app.cluster_section import section_of, write_section
    from egressd.app.local_postgres import OWNER, SOCKETS, LocalPostgres
    from egressd.app.site_authority import SiteAuthority
    from egressd.license.device import this_device
    from egressd.store.postgres import schema
    from egressd.store.postgres.connection import check_conninfo
    from egressd.store.sealing import SiteSeal

    settings = config.load(path)
    _require_root("make a site")
    database = LocalPostgres(sockets or SOCKETS, port)
    if is_local:
        if owner is not None:
            raise Invalid("--owner must not be given with --local")
        if not addresses:
            raise Invalid("--address must be given with --local")
        cluster = replace(
            settings.cluster,
            database=settings.cluster.database or database.conninfo(role),
            site=site_name or settings.cluster.site,
        )
        settings = replace(settings, cluster=cluster)
    site.require_site(settings)
    check_conninfo(settings.cluster.database)
    must_restart = False
    user = accounts.account(settings.api.user)
    prepare_directory(settings.api_data, (user.pw_uid, user.pw_gid))
    folder = member_files.folder_of(settings)
    prepare_directory(folder)
    key = site_key.ensure(settings)
    authority = SiteAuthority.of_folder(folder, settings.cluster.site)
    certificate = member_files.own_certificate(settings, authority, role)
    if is_local:
        server, must_restart = database.set_up(
            authority, addresses, role=role, user=settings.api.user
        )
        replace_durably(folder / member_files.SERVER_CERTIFICATE, server)
        owner = database.conninfo(OWNER)
    owner = _owner_of(settings, owner)
    schema.migrate(owner)
    schema.add_member(
        owner,
        site=settings.cluster.site,
        key_id=SiteSeal(key).key_id,
        member=settings.cluster.member,
        role=role,
        certificate=certificate,
        device=this_device(),
    )
    replace_durably(folder / OWNER_FILE, owner.encode())
    file = path or config.DEFAULT_PATH
    if is_local:
        click.echo(section_of(settings.cluster))
        if write:
            write_section(file, settings.cluster)
        else:
            click.echo(f"the section must be in {file}", err=True)
    if must_restart:
        click.echo("other boxes reach it after: systemctl restart postgresql", err=True)
    click.echo(
        f"{settings.cluster.member} is a member of the site {settings.cluster.site}:"
        " restart the service"
    )


@cluster.command()
@owner_option
@config_option
def migrate(owner: str | None, path: Path | None) -> None:
    """Bring the database's tables to the schema of this version of egressd."""
    from egressd.app import config
    from egressd.store.postgres import schema

    schema.migrate(_owner_of(config.load(path), owner))
    click.echo("the database has the newest schema")


@cluster.command()
@click.option("--member", default="", help="The box's name in the site. Default: its host name.")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Where the other box reaches the database; may be repeated. Default: what this box uses,"
    " or what the database's certificate names.",
)
@owner_option
@config_option
def invite(member: str, addresses: tuple[str, ...], owner: str | None, path: Path | None) -> None:
    """Invite another box to the site: print a token for 15 minutes, and wait for the box.

    Give the token to `egressd cluster join` on the other box. It is used once. It is
    all that a box needs to join, so pass it on over SSH.
    """
    from egressd.app import config, inviting, site

    settings = config.load(path)
    site.require_site(settings)
    _require_root("invite a box")

    def announce(token: str) -> None:
        click.echo(
            "on the other box, within 15 minutes: egressd cluster join, which asks for this token",
            err=True,
        )
        click.echo(token)

    joined = inviting.invite(
        settings,
        _owner_of(settings, owner),
        database=inviting.public_conninfo(settings, addresses),
        member=member,
        announce=announce,
    )
    click.echo(f"{joined} is a member of the site {settings.cluster.site}", err=True)


@cluster.command()
@write_option
@click.option("--yes", is_flag=True, help="Give this box's own configuration up without asking.")
@config_option
def join(*, write: bool, yes: bool, path: Path | None) -> None:
    """Make this box a member of the site that a token is from.

    The token of `egressd cluster invite` is asked for, or read from standard input where that is no
    terminal: a box gets the site's key by it, and each user of this box can read a command line.
    The site's configuration replaces this box's own, which is backed up first. The section
    [cluster] is printed, to be written into the configuration file.
    """
    from egressd.app import config, joining
    from egressd.app.cluster_section import section_of, write_section
    from egressd.app.join_token import JoinToken

    settings = config.load(path)
    _require_root("join a site")
    read = JoinToken.read(_given_token())
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    backup = settings.data.dir / f"before-site-{now}.backup"

    def permit() -> None:
        click.echo(
            f"this box has a configuration of its own. That of the site {read.site} replaces it,"
            f" and it is backed up to {backup}",
            err=True,
        )
        if not yes:
            confirm("Join the site?", err=True)

    made = joining.join(
        settings,
        read,
        backup=backup,
        permit=permit,
        announce=lambda text: click.echo(text, err=True),
    )
    click.echo(section_of(made))
    file = path or config.DEFAULT_PATH
    if write:
        write_section(file, made)
    written = "is" if write else "must be"
    click.echo(
        f"{made.member} is a member of the site {made.site}. The section {written} in {file};"
        " then: systemctl restart egressd-api. Until then this box lets clients through by its own"
        " configuration",
        err=True,
    )


@cluster.command()
@click.option("--write", is_flag=True, help="Remove the section from the configuration file, too.")
@click.option("--yes", is_flag=True, help="Leave without asking.")
@config_option
def leave(*, write: bool, yes: bool, path: Path | None) -> None:
    """Make this box a box of its own again, with the site's configuration as it is now.

    Its clients are served all the time. It leaves with the restart of its service, which then tells
    the site, so that other members do not wait for this one any more, and removes the keys by which
    it was a member. Until that restart the box is a member.
    """
    from egressd.app import config, leaving, site
    from egressd.app.cluster_section import write_section

    settings = config.load(path)
    site.require_site(settings)
    _require_root("leave a site")
    name = settings.cluster.site

    def permit(reason: str) -> None:
        if reason:
            click.echo(
                f"{reason}\nThis box has a replica, which may lack the newest changes, and the site"
                " counts it as a member until it can be informed.",
                err=True,
            )
        click.echo(f"changes of the site {name} will not reach this box any more", err=True)
        if not yes:
            confirm("Leave the site?", err=True)

    leaving.note(settings, permit)
    file = path or config.DEFAULT_PATH
    if write:
        try:
            write_section(file, None)
        except BaseException:
            leaving.withdraw(settings.api_data)
            raise
    else:
        click.echo(f"remove the section [cluster] from {file}", err=True)
    click.echo("then restart the service: sudo systemctl restart egressd-api", err=True)


@cluster.command("rotate-key")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@owner_option
@config_option
def rotate_key(*, yes: bool, owner: str | None, path: Path | None) -> None:
    """Give the site another key, after a box was stolen, say, and was removed from the site.

    All secrets in the database are sealed anew. Members take the key by themselves, within a second
    if they run; clients do not notice. The secrets themselves, those of nodes and lines, stay as
    they are: a stolen box has them.
    """
    from egressd.app import config, key_rotation, site

    settings = config.load(path)
    site.require_site(settings)
    _require_root("give the site another key")
    if not yes:
        confirm(f"Give the site {settings.cluster.site} another key?", err=True)
    without = key_rotation.rotate(settings, _owner_of(settings, owner))
    click.echo(f"the site {settings.cluster.site} has another key. Keep a copy of it", err=True)
    for name in without:
        click.echo(f"{name} does not have it yet: it takes it once its service runs", err=True)


@cluster.command()
@json_option
@config_option
def status(*, as_json: bool, path: Path | None) -> None:
    """Show the members of the site, after two looks at the database.

    The revision is that of the configuration in force there, and lag the number of changes that it
    lacks; neither is known of a member that has not started since the database's last crash, or
    that has another history in force.
    """
    from egressd.app import config, site, site_status

    settings = config.load(path)
    site.require_site(settings)
    _require_root("ask the site's database")
    rows = [msgspec.to_builtins(state) for state in site_status.members_of(settings)]
    show_members(rows, as_json=as_json)


@cluster.command()
@click.argument("member")
@click.option("--yes", is_flag=True, help="Remove it without asking.")
@click.option("--is-off", is_flag=True, help="State that MEMBER's machine is off.")
@owner_option
@config_option
def remove(*, member: str, yes: bool, is_off: bool, owner: str | None, path: Path | None) -> None:
    """Take MEMBER's right to the site, for a box that is lost or that another one replaces.

    Its connections end, and it can log in no more. If it runs it lets no client through once its
    lease has run out, and the next change waits for that. A box that was the only member when its
    service ended needs no lease, so it must be off. It keeps its copies of the site's configuration
    and key: if it was stolen, run `egressd cluster rotate-key`.
    """
    from egressd.app import config, site
    from egressd.store.postgres import schema

    settings = config.load(path)
    site.require_site(settings)
    _require_root("remove a member")
    if member == settings.cluster.member:
        raise Invalid("MEMBER must be another box")
    if not yes:
        confirm(f"Remove the member {member}?", err=True)
    schema.revoke_member(
        _owner_of(settings, owner), site=settings.cluster.site, member=member, is_off=is_off
    )
    click.echo(f"{member} is no member of the site {settings.cluster.site} any more", err=True)


def _given_token() -> str:
    """Return the token from standard input, unseen if that is a terminal. Raises Invalid."""
    if sys.stdin.isatty():
        return str(click.prompt("Token", hide_input=True, err=True))
    return sys.stdin.read(_TOKEN_MAX)


def _require_root(action: str) -> None:
    if os.geteuid():
        raise Failed(action, "only root may, since keys belong to root and the service's user")


def _owner_of(settings: Config, given: str | None) -> str:
    """Return the owner's connection string. Raises Invalid if there is none."""
    from egressd.app import member_files

    file = member_files.folder_of(settings) / OWNER_FILE
    if given is not None:
        return given
    try:
        return file.read_text("utf-8")
    except OSError:
        raise Invalid("--owner must be given: no egressd cluster init has noted one here") from None
