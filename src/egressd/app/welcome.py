"""The block on the terminal once the service runs: the addresses of console and API, and the code
for the first start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Address

import structlog

from egressd import __version__
from egressd.app.config import Config
from egressd.app.listen_address import ListenAddress
from egressd.app.network import own_addresses
from egressd.model.errors import Failed
from egressd.store.setup_code import SetupCode

log = structlog.get_logger()


def show(settings: Config) -> None:
    """Print the block if standard error is a terminal; else log the addresses."""
    code, addresses = None, []
    with suppress(OSError):
        addresses = [found for found in own_addresses() if not found.is_loopback]
    if not sys.stderr.isatty():
        console = " ".join(_urls("https", settings.api.tls_listen, addresses))
        api = " ".join(_urls("http", settings.api.listen, addresses))
        log.info("console and API answer", console=console, api=api)
        return
    with suppress(Failed):
        code = SetupCode(settings.api_data).code()
    with suppress(OSError):
        print(block(settings, addresses, code), file=sys.stderr, flush=True)


def block(settings: Config, addresses: Sequence[IPv4Address], code: str | None) -> str:
    """Return the block for a machine with these addresses; `code` is None once the console has a
    password.
    """
    rows = [("console", " ".join(_urls("https", settings.api.tls_listen, addresses)))]
    if code is not None:
        rows.append(("setup code", f"{code}  (again: sudo egressd console code)"))
    rows += [
        ("API", " ".join(_urls("http", settings.api.listen, addresses))),
        ("API token", "sudo egressd token show"),
    ]
    lines = [f"egressd {__version__} runs. Clients without a rule are blocked."]
    return "\n".join(["", *lines, *(f"  {name:<10}  {text}" for name, text in rows), ""])


def _urls(scheme: str, endpoint: ListenAddress, addresses: Sequence[IPv4Address]) -> Iterator[str]:
    """Yield the URLs of a server that listens at `endpoint`."""
    if not endpoint.address.is_unspecified or not addresses:
        yield f"{scheme}://{endpoint.here}/"
        return
    for address in addresses:
        yield f"{scheme}://{ListenAddress(address, endpoint.port)}/"
