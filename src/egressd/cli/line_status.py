"""``egressd lines`` without a command: the status of each VPN line, from netd."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from egressd.model.errors import Failed
from egressd.model.messages import LineStatus
from egressd.netd.ipc.client import NetdClient

_CONNECT_S: Final = 5.0


def show_status(path: Path | None) -> None:
    """Print each enabled VPN line: its state, address and encryption, or the reason why it is down
    and the time of its next attempt. `path` is the configuration file.
    """
    from egressd.app import config

    found = asyncio.run(_ask(config.load(path).netd_socket))
    for row in table(found) if found else ("no line is enabled",):
        click.echo(row)


async def _ask(socket: Path) -> Mapping[str, LineStatus]:
    connected = asyncio.Event()

    async def on_connect() -> None:
        connected.set()

    netd = NetdClient(socket, on_connect=on_connect, on_event=lambda _: None)
    running = asyncio.create_task(netd.run())
    try:
        async with asyncio.timeout(_CONNECT_S):
            await connected.wait()
        return netd.lines()
    except TimeoutError:
        raise Failed("ask about the lines", f"no process listens at {socket}") from None
    finally:
        running.cancel()
        await asyncio.wait({running})


def table(found: Mapping[str, LineStatus]) -> Iterator[str]:
    """Yield a heading, and a line of text for each VPN line; columns are aligned."""
    rows = [("LINE", "STATE", "ADDRESS", "NEXT ATTEMPT", "ENCRYPTION OR REASON")]
    for name, status in sorted(found.items()):
        told = status.reason or status.encryption or "-"
        rows.append((name, status.state, status.ip or "-", status.next_attempt or "-", told))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
