"""The listeners in a sing-box document. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from egressd.netd.engine.outbound_errors import LOG_OUTPUT
from egressd.planner import tunnels


class _Document(msgspec.Struct):
    """The form that a document must have, as far as this module examines it."""

    inbounds: list[dict[str, Any]] = []


class Listeners:
    """The listeners of a sing-box document.

    Raises ValueError if it is not such a document.
    """

    def __init__(self, config: str) -> None:
        try:
            self._document = msgspec.json.decode(config, type=dict[str, Any])
            msgspec.convert(self._document, _Document)
        except msgspec.DecodeError as error:
            raise ValueError(f"the configuration is not a sing-box document: {error}") from error
        self._inbounds: list[dict[str, Any]] = self._document.get("inbounds", [])
        self._open = next(
            (i for i in self._inbounds if i.get("type") == "tproxy" and not i.get("listen_port")),
            None,
        )

    @property
    def needs_port(self) -> bool:
        """True if a TPROXY inbound leaves its port open (``listen_port`` 0)."""
        return self._open is not None

    @property
    def port(self) -> int:
        """The first listener's port; 0 if there is none."""
        return next((i["listen_port"] for i in self._inbounds if i.get("listen_port")), 0)

    def on(self, port: int) -> str:
        """Return the document with its open port set, and its log going where failures are read
        from.
        """
        assert self._open is not None
        self._open["listen_port"] = port
        for inbound in self._inbounds:
            if inbound.get("tag") == tunnels.LISTENER:  # at an address of its own
                inbound["listen_port"] = port
        log = {**self._document.get("log", {}), "output": LOG_OUTPUT}
        return _json({**self._document, "log": log})

    def nowhere(self) -> str:
        """Return the document with every listener on some free loopback port: good for a trial
        while an instance of it runs. It omits TPROXY listeners: the kernel might send clients
        there. Its tunnels send nothing by themselves.
        """
        tunnels.silence(self._document)
        inbounds = [
            {**inbound, "listen": "127.0.0.1", "listen_port": 0}
            for inbound in self._inbounds
            if inbound.get("type") != "tproxy"
        ]
        return _json({**self._document, "inbounds": inbounds})


def _json(document: dict[str, Any]) -> str:
    return msgspec.json.encode(document).decode()
