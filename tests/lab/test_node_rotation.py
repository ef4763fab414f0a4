"""A node's exit is changed by its seller's page, which is asked by the node's own way or by the one
that it names, and by no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, Final

import pytest

from egressd.model.errors import Failed
from egressd_lab.host import Host
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, add_nodes, eventually, kill, send

pytestmark = pytest.mark.lab

WEB: Final = f"http://{SERVER}/"
KEY: Final = "key-4711"
SELLER: Final = "seller.example"
PAGE: Final = f"http://{SELLER}/page?{KEY}"
SOON_S: Final = 60.0


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("socks5", "http"))) as lab:
        lab.internet.put_name(SELLER, SERVER)
        lab.internet.put_page("ip={ip}\n")
        lab.start_egressd({"exits": {"url": f"{WEB}page"}}, {"EGRESSD_LOG_LEVEL": "debug"})
        add_nodes(lab)
        for client, node in ((1, "socks5"), (2, "http")):
            send(lab, client, node)
        yield lab


def number_of(lab: Lab, name: str) -> int:
    found = lab.api.get("/nodes")["data"]
    return next(int(each["id"]) for each in found if each["name"] == name)


def edit(lab: Lab, url: str, via: str = "") -> None:
    """Give the node socks5 a page, by the command line, and the target that it is asked by."""
    options = ("--change-ip-url", url, "--change-ip-via", via)
    lab.device.run("nodes", "edit", "socks5", *options)


def asked(lab: Lab, since: int) -> list[str]:
    """Return the sources of the requests for the page."""
    return [each.source for each in lab.internet.seen(since=since, text=KEY)]


class Seller:
    """The far end of the node socks5, which may leave by another address."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._node = lab.nodes["socks5"]
        self._host = Host(lab.name, f"node-{self._node.name}", lab.folder)
        network, _, last = self._node.address.rpartition(".")
        self.other = f"{network}.{int(last) + 100}"

    def change(self) -> None:
        """Have new connections leave by the other address."""
        run = self._host.run
        self._route("add")
        run("ip", "address", "add", f"{self.other}/32", "dev", "eth0")
        run("nft", "add table ip seller")
        run("nft", "add chain ip seller post { type nat hook postrouting priority srcnat; }")
        match = f"ip saddr {self._node.address} tcp dport 80"
        run("nft", f"add rule ip seller post {match} snat to {self.other}")

    def restore(self) -> None:
        """Have them leave by its own again."""
        self._host.run("nft", "delete table ip seller", check=False)
        address = f"{self.other}/32"
        self._host.run("ip", "address", "del", address, "dev", "eth0", check=False)
        with suppress(Failed):
            self._route("del")

    def _route(self, verb: str) -> None:
        route = f"route {verb} {self.other}/32 dev to-{self._node.name}"
        self._lab.topology.ip("internet", [route])


def begun(lab: Lab) -> str:
    """Have the node socks5 rotate, and return the path of the rotation."""
    number = number_of(lab, "socks5")
    answer = lab.api.ask("POST", f"/ops/nodes/{number}/rotate", {})
    assert answer.status == 202, answer.body
    return f"/ops/nodes/{number}/rotations/{answer.body['id']}"


def ended(lab: Lab, path: str) -> dict[str, Any]:
    """Return a rotation once it has ended."""
    found: dict[str, Any] = {}

    def is_over() -> bool:
        found.update(lab.api.ask("GET", path).body)
        return bool(found["state"] != "running")

    eventually(is_over, SOON_S)
    return found


def seen(lab: Lab, client: int) -> str:
    reply = lab.client(client).http(WEB, timeout=5)
    return reply.seen or reply.error


@pytest.mark.parametrize("via", ["", "http", "Interface:wan2"])
def test_p1_a_node_s_page_is_asked_by_its_way_alone(lab: Lab, via: str) -> None:
    node = lab.nodes["socks5"]
    sources = {
        "": node.address,
        "http": lab.nodes["http"].address,
        "Interface:wan2": lab.wan(2).address,
    }
    edit(lab, PAGE, via)
    mark = lab.internet.mark()
    seller = Seller(lab)
    with lab.internet.capture() as capture, ExitStack() as mend:
        mend.callback(seller.restore)
        capture.prove()
        rotation = begun(lab)
        eventually(lambda: bool(asked(lab, mark)), SOON_S)
        assert lab.api.ask("GET", rotation).body["state"] == "running"
        seller.change()
        found = ended(lab, rotation)
        assert (found["state"], found["reason"]) == ("done", "")
        assert (found["exit_before"], found["exit_after"]) == (node.address, seller.other)
        assert seen(lab, 1) == seller.other
        assert seen(lab, 2) == lab.nodes["http"].address, "no other node's client is concerned"
        assert asked(lab, mark) == [sources[via]]
        own = {lab.wan(1).address, lab.wan(2).address} - {sources[via]}
        assert [each for each in capture.flows(destination=SERVER) if each.source in own] == []


def test_a_rotation_survives_a_killed_api_and_asks_its_page_once(lab: Lab) -> None:
    """Past fault: the next api knew nothing of a rotation that had been answered 202."""
    edit(lab, PAGE)
    mark = lab.internet.mark()
    seller = Seller(lab)
    with ExitStack() as mend:
        mend.callback(seller.restore)
        rotation = begun(lab)
        eventually(lambda: bool(asked(lab, mark)), SOON_S)
        kill(lab, "egressd.app api")
        lab.device.wait_healthy(30)
        assert lab.api.ask("GET", rotation).body["state"] == "running"
        seller.change()
        found = ended(lab, rotation)
        assert (found["state"], found["exit_after"]) == ("done", seller.other)
        assert len(asked(lab, mark)) == 1


def test_an_exit_that_stays_is_a_failure(lab: Lab) -> None:
    edit(lab, f"http://{SELLER}/status/503?{KEY}")
    mark = lab.internet.mark()
    with pytest.raises(Failed, match="no good answer"):
        lab.device.run("nodes", "rotate", "socks5")
    assert asked(lab, mark) == [lab.nodes["socks5"].address]
    assert seen(lab, 1) == lab.nodes["socks5"].address


def test_p1_a_dead_way_lets_nothing_out(lab: Lab) -> None:
    edit(lab, PAGE, "http")
    node = lab.nodes["http"]
    node.program.stop(10)
    mark = lab.internet.mark()
    try:
        with lab.internet.capture() as capture:
            capture.prove()
            found = ended(lab, begun(lab))
            assert found["state"] == "failed"
            assert found["reason"].startswith("its change_ip_url had no good answer")
            assert asked(lab, mark) == []
            own = {lab.wan(1).address, lab.wan(2).address}
            assert [each for each in capture.flows(destination=SERVER) if each.source in own] == []
    finally:
        node.program.start()
    assert lab.internet.seen(since=mark, text=SELLER) == []


def test_p7_no_log_and_no_record_has_the_page(lab: Lab) -> None:
    logged = lab.device.program.log.read_text()
    assert "/rotate" in logged
    assert KEY not in logged
    assert KEY not in json.dumps(lab.api.ask("GET", "/ops/changes").body)
    assert KEY not in json.dumps(lab.api.ask("GET", "/ops/events/latest").body)
    assert KEY not in json.dumps(lab.api.get("/nodes"))
