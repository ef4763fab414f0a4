"""Nodes with servers on this machine or in a LAN: a name is never dialled to such an address."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from egressd.model.errors import Failed
from egressd_lab import netns
from egressd_lab.device import API_PREFIX
from egressd_lab.lab import Lab
from egressd_lab.process import Program
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.support.device import eventually, send

pytestmark = pytest.mark.lab

PORT = 1081
NEIGHBOUR = "10.77.0.12"
"""The second client's address."""
ZONE: dict[str, tuple[str, ...]] = {
    "neighbour.test": (NEIGHBOUR,),
    "loopback.test": ("127.0.0.1",),
    "lan.test": (str(LAN_ADDRESS),),
    "unspecified.test": ("0.0.0.0",),
}


@pytest.fixture(scope="module", params=["two arms", "one arm"])
def lab(namespaces: None, request: pytest.FixtureRequest) -> Iterator[Lab]:
    is_one = request.param == "one arm"
    with Lab(LabSpec(nodes=(), zone=ZONE, one_arm=is_one, wans=1 if is_one else 2)) as lab:
        lab.start_egressd()
        yield lab


class Called:
    """An HTTP server in a namespace, and its requests."""

    def __init__(self, lab: Lab, role: str) -> None:
        self._log = lab.folder / f"called-{role}.log"
        argv = [sys.executable, "-u", "-m", "http.server", str(PORT)]
        self.program = Program(netns.namespace(lab.name, role), argv, self._log, {})

    @property
    def number(self) -> int:
        return self._log.read_text().count('"CONNECT')


@pytest.fixture
def called(lab: Lab) -> Iterator[dict[str, Called]]:
    """Run servers on this machine and on the neighbour."""
    servers = {role: Called(lab, role) for role in ("router", "client2")}
    for server in servers.values():
        server.program.start()
    try:
        for role in servers:
            eventually(lambda role=role: is_listening(lab, role))  # type: ignore[misc]
        yield servers
    finally:
        for server in servers.values():
            server.program.stop(10)


def is_listening(lab: Lab, role: str) -> bool:
    host = lab.router if role == "router" else lab.client(2).host
    return f":{PORT}" in host.run("ss", "-Hltn").stdout


def node(server: str) -> dict[str, Any]:
    config = json.dumps({"server": server, "port": PORT})
    return {"name": server, "protocol": "http", "config_json": config, "group": ""}


def delay(lab: Lab, name: str) -> str:
    """Return the reason for which the node has no delay."""
    return str(
        lab.api.ask("GET", f"{API_PREFIX}/nodes/delay?name={name}&timeout=1500").body["error"]
    )


def test_a_server_in_a_lan_is_dialled_by_address_and_not_by_name(
    lab: Lab, called: dict[str, Called]
) -> None:
    by_name = lab.api.post("/nodes", node("neighbour.test"))["id"]
    assert delay(lab, "neighbour.test")
    send(lab, 1, "neighbour.test")
    assert lab.client(1).http("http://203.0.113.10/").seen == ""
    assert called["client2"].number == 0
    by_address = lab.api.post("/nodes", node(NEIGHBOUR))["id"]
    delay(lab, NEIGHBOUR)
    assert called["client2"].number > 0  # the positive control
    before = called["client2"].number
    send(lab, 1, NEIGHBOUR)
    lab.client(1).http("http://203.0.113.10/")
    assert called["client2"].number > before
    lab.api.delete(f"/nodes/{by_address}")
    before = called["client2"].number
    assert delay(lab, "neighbour.test")
    assert called["client2"].number == before
    lab.api.delete(f"/nodes/{by_name}")


@pytest.mark.parametrize("name", ["loopback.test", "lan.test", "unspecified.test", "wan"])
def test_this_machine_is_never_dialled_by_any_name(
    lab: Lab, called: dict[str, Called], name: str
) -> None:
    if name == "wan":
        with pytest.raises(Failed, match=r"config_json\.server must not be this device itself"):
            lab.api.post("/nodes", node(lab.wan(1).address))
        return
    made = lab.api.post("/nodes", node(name))["id"]
    send(lab, 1, name)
    assert delay(lab, name)
    assert lab.client(1).http("http://203.0.113.10/").seen == ""
    assert called["router"].number == 0
    lab.api.delete(f"/nodes/{made}")


def test_an_import_takes_private_servers_on_request_only(lab: Lab) -> None:
    rows = f"{NEIGHBOUR},1080,u,p,near\n{LAN_ADDRESS},1080,u,p,own\n203.0.113.77,1080,u,p,far"
    body = {"type": "socks5", "text": rows}
    answer = lab.api.post("/nodes/import", body)
    assert (answer["imported"], answer["errors"]) == (1, 2)
    assert "line 1: server must be on the internet" in answer["error_rows"][0]
    assert answer["error_rows"][1] == "line 2: server must not be this device itself"
    answer = lab.api.ask("POST", "/ops/import/nodes", {**body, "privateServers": True}).body
    assert (answer["imported"], answer["errors"]) == (1, 1)
