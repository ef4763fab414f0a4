"""A client's traffic through a node of WireGuard whose server is the kernel's own module."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from tests.support.device import SERVER, eventually, send

MODULES: Final = ("wireguard",)
_NAME: Final = "tunnel"
_PATIENCE_S: Final = 10.0
"""Seconds that a client waits for an answer: the emulated machine computes the handshake."""
_BLOCKED_S: Final = 3.0
"""Seconds that a client waits for an answer that must not come."""
_BACK_S: Final = 60.0
"""Seconds until a server that came back has to be in use. A peer asks for a new session when it
has heard nothing for 15 s."""


class Visit(msgspec.Struct, frozen=True):
    """The errors of a client's requests by TCP and UDP, and the addresses that servers saw."""

    errors: tuple[str, str]
    seen: tuple[str, str]


class Tunnelled(msgspec.Struct, frozen=True):
    """All results about the node."""

    address: str
    """The server's own address, which its client leaves by."""
    first: Visit
    is_intact: bool
    """True if a large upload arrived whole."""
    gone: Visit
    """While the server was gone."""
    again: Visit
    """After it had come back."""
    seen_while_gone: int
    """The client's requests of that time that arrived anywhere."""
    in_tunnel: int
    """Flows between the router and the server on the WAN."""
    outside: int
    """Flows on the WAN to what the client asked for: packets outside of the tunnel."""


def tunnelled(lab: Lab) -> Tunnelled:
    """Send a client through the node while its server is there, is gone, and is back."""
    server = lab.add_wireguard(in_kernel=True)
    config = json.dumps(server.clash)
    made = {"name": _NAME, "protocol": "wireguard", "config_json": config, "group": ""}
    lab.api.post("/nodes", made)
    with lab.internet.capture(lab.wan(1).far) as capture:
        send(lab, 1, _NAME)
        first = _visit(lab, "first", _PATIENCE_S)
        page = f"http://{SERVER}/up"
        upload = lab.client(1).http(page, method="POST", upload=300_000, timeout=_PATIENCE_S)
        server.remove()
        mark, token = lab.internet.mark(), new_token()
        gone = _visit(lab, token, _BLOCKED_S)
        arrived = lab.internet.seen(since=mark, text=token)
        server.start()
        eventually(lambda: lab.client(1).http(f"http://{SERVER}/").ok, _BACK_S)
        return Tunnelled(
            address=server.address,
            first=first,
            is_intact=upload.ok and bool(upload.json["intact"]),
            gone=gone,
            again=_visit(lab, "again", _PATIENCE_S),
            seen_while_gone=len(arrived),
            in_tunnel=len(capture.flows(destination=server.address)),
            outside=len(capture.flows(destination=SERVER)),
        )


def _visit(lab: Lab, token: str, timeout_s: float) -> Visit:
    client = lab.client(1)
    page = client.http(f"http://{SERVER}/{token}", timeout=timeout_s)
    echo = client.udp_echo(token, SERVER, timeout=timeout_s)
    return Visit((page.error, echo.error), (page.seen, echo.seen))
