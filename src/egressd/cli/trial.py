"""``egressd trial``."""

from __future__ import annotations

import click

from egressd.cli.output import done, json_option, show_fields, show_json
from egressd.cli.remote import Remote, over_api
from egressd.model.trial import TRIAL_MAX_MINUTES


@click.group()
def trial() -> None:
    """Changes that are taken back unless they are confirmed in time."""


@trial.command()
@click.option("--minutes", type=click.IntRange(1, TRIAL_MAX_MINUTES), default=5, show_default=True)
@json_option
@over_api
def start(remote: Remote, *, minutes: int, as_json: bool) -> None:
    """Take back what changes from now on, unless egressd trial confirm keeps it in time."""
    done(remote.send("POST", "/ops/trial", {"minutes": minutes}), as_json)


@trial.command()
@json_option
@over_api
def confirm(remote: Remote, *, as_json: bool) -> None:
    """Keep what was changed since the trial began."""
    done(remote.send("POST", "/ops/trial/confirm", {}), as_json)


@trial.command()
@json_option
@over_api
def revert(remote: Remote, *, as_json: bool) -> None:
    """Take back at once what was changed since the trial began."""
    done(remote.send("POST", "/ops/trial/revert", {}), as_json)


@trial.command()
@json_option
@over_api
def status(remote: Remote, *, as_json: bool) -> None:
    """Print whether changes are on trial, and until when."""
    found = remote.get("/ops/trial")
    if as_json:
        show_json(found)
    elif found["is_running"]:
        shown = {name: found[name] for name in ("began_at", "ends_at", "who", "changes")}
        show_fields(shown, as_json)
    else:
        click.echo("no changes are on trial")
