"""Connections of a client are listed, and closed: by the kernel, by a node, and inbound."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from egressd.netd.kernel.cut_flows import TIMEOUT_S
from egressd.planner.registry import MARK_REJECT
from egressd_lab.client import Connection
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from tests.support.device import (
    SERVER,
    elements,
    eventually,
    kill,
    port_forward,
    send,
    stopped,
)

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("nodes")]

FORWARDED: Final = 8022
WEB = f"http://{SERVER}/"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss", "socks5-udp"), clients=3)) as lab:
        lab.start_egressd()
        yield lab


def ask(lab: Lab, method: str, path: str) -> Any:
    """Return the answer to a request about connections."""
    answer = lab.api.ask(method, f"/ops/connections{path}")
    assert answer.status == 200, answer
    return answer.body


def listed(lab: Lab, client: int) -> list[dict[str, Any]]:
    """Return the client's connections but those of names."""
    time.sleep(0.6)  # an answer may be half a second old
    found = ask(lab, "GET", f"?client={lab.client(client).address}")
    return [row for row in found["data"] if row["port"] != 53]


def the_one(lab: Lab, client: int, is_meant: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the only connection of a client for which `is_meant` is true, once it is listed."""
    found: list[dict[str, Any]] = []

    def is_listed() -> bool:
        found[:] = [row for row in listed(lab, client) if is_meant(row)]
        return len(found) == 1

    eventually(is_listed)
    return found[0]


def to_web(lab: Lab, client: int) -> dict[str, Any]:
    return the_one(lab, client, lambda row: (row["ip"], row["port"]) == (SERVER, 80))


@pytest.mark.parametrize(
    ("target", "exit_", "kind"),
    [
        ("DIRECT", "DIRECT", "direct"),
        ("Interface:wan2", "wan2", "interface"),
        ("ss", "ss", "node"),
    ],
)
def test_a_closed_download_ends_and_those_of_others_go_on(
    lab: Lab, target: str, exit_: str, kind: str
) -> None:
    send(lab, 1, target)
    send(lab, 2, target)
    address = lab.client(1).address
    mine = lab.client(1).download(f"{WEB}drip/20000")
    other = lab.client(2).download(f"{WEB}drip/20000")
    second = lab.client(1).connect()
    shown = to_web(lab, 1)
    assert (shown["exit"], shown["kind"], shown["state"]) == (exit_, kind, "open")
    assert (shown["protocol"], shown["is_inbound"]) == ("tcp", False)
    assert 0 <= shown["age_s"] < 30
    assert shown["via"] == ("DIRECT" if kind == "node" else "")
    if kind == "node":
        assert shown["received"] > 0
    ask(lab, "DELETE", f"/{shown['id']}?client={address}")
    eventually(lambda: mine.progress().finished)
    assert mine.stop().error
    assert second.exchange("the other one stays").ok
    second.close()
    assert not other.progress().finished
    assert not [row for row in listed(lab, 1) if row["id"] == shown["id"]]
    assert lab.client(1).http(WEB).ok, "a new connection is not refused"
    assert not other.stop().error


def test_all_connections_of_a_client_are_closed_at_once(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    send(lab, 2, "ss")
    kept = lab.client(2).connect()
    opened = [lab.client(1).connect() for _ in range(5)]
    answer = ask(lab, "DELETE", f"?client={lab.client(1).address}")
    assert answer["closed"] >= 5
    assert answer["left"] == 0
    for connection in opened:
        assert not connection.exchange("too late").ok
        connection.close()
    assert kept.exchange("undisturbed").ok
    kept.close()


def test_an_idle_connection_that_was_closed_is_not_picked_up_again(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    idle = lab.client(1).connect()
    ask(lab, "DELETE", f"?client={lab.client(1).address}")
    time.sleep(1)
    result = idle.exchange("after a while")
    assert result.error == "ECONNRESET"
    idle.close()


def closed_while_idle(lab: Lab) -> Connection:
    """Return a connection of the first client that was closed while it was silent, and whose entry
    is gone.
    """
    send(lab, 1, "DIRECT")
    idle = lab.client(1).connect()
    address = lab.client(1).address
    assert ask(lab, "DELETE", f"?client={address}")["closed"] > 0
    eventually(lambda: lab.router.run("conntrack", "-L", "-p", "tcp", "-s", address).stdout == "")
    assert address in elements(lab, "set", "cut_flows")
    return idle


def flush(lab: Lab) -> None:
    """Flush the ruleset as another program, and wait until clients are served again."""
    send(lab, 2, "DIRECT")
    lab.router.run("nft", "flush", "ruleset")
    eventually(lambda: lab.client(2).http(WEB, timeout=1).ok)


def assert_reset(lab: Lab, idle: Connection) -> None:
    """Assert that the client of `idle` is reset when it sends, and that nothing of it gets out."""
    with lab.internet.capture() as capture:
        capture.prove(lab.client(2).connect().exchange)
        token = new_token()
        assert idle.exchange(token).error == "ECONNRESET"
        assert not capture.flows(token)


def test_a_closed_connection_does_not_go_on_after_a_flush_of_the_ruleset(lab: Lab) -> None:
    """Past fault: the set of cut flows was lost with the table."""
    idle = closed_while_idle(lab)
    for _ in range(2):
        flush(lab)
    assert lab.client(1).address in elements(lab, "set", "cut_flows")
    assert_reset(lab, idle)


def test_a_moved_clients_connection_does_not_go_on_after_a_flush(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    address = lab.client(1).address
    idle = lab.client(1).connect()
    send(lab, 1, "Interface:wan2")
    eventually(lambda: lab.router.run("conntrack", "-L", "-p", "tcp", "-s", address).stdout == "")
    flush(lab)
    assert_reset(lab, idle)


def test_the_next_netd_knows_the_connections_that_were_closed(lab: Lab) -> None:
    idle = closed_while_idle(lab)
    kill(lab, "egressd.app netd")
    lab.device.wait_healthy()
    flush(lab)
    assert_reset(lab, idle)


@contextmanager
def inbound(lab: Lab) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Open a connection from outside to the first client by a port forward: both of its ends."""
    client = lab.client(1)
    with (
        client.host.socket() as listener,
        port_forward(lab, f"iifname wan2 tcp dport {FORWARDED} dnat to {client.address}"),
    ):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((client.address, FORWARDED))
        listener.listen()
        with (
            lab.internet.socket(lab.wan(2).address, FORWARDED) as caller,
            listener.accept()[0] as served,
        ):
            yield caller, served


def close_inbound(lab: Lab) -> None:
    row = the_one(lab, 1, lambda row: bool(row["is_inbound"]))
    assert (row["client_port"], row["exit"], row["kind"]) == (FORWARDED, "wan2", "interface")
    answer = ask(lab, "DELETE", f"/{row['id']}?client={lab.client(1).address}")
    assert answer["closed"] == 1


def is_reset(served: socket.socket) -> bool:
    served.settimeout(5)
    try:
        served.sendall(b"too late")
        while served.recv(100):  # what the caller has sent before may have reached it
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        pass
    return False


def assert_over(caller: socket.socket, served: socket.socket) -> None:
    """Assert that the client is reset when it sends, and that nothing of it reaches the caller."""
    assert is_reset(served)
    caller.settimeout(2)
    with pytest.raises(TimeoutError):
        caller.recv(1)


def test_an_inbound_connection_is_listed_and_closed(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    with inbound(lab) as (caller, served):
        close_inbound(lab)
        assert_over(caller, served)
        assert not [row for row in listed(lab, 1) if row["is_inbound"]]


def test_a_closed_inbound_connection_does_not_go_on_when_its_client_moves(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    with inbound(lab) as (caller, served):
        old = lab.client(1).connect()
        close_inbound(lab)
        send(lab, 1, "Interface:wan2")
        # What the client had before is removed in the background.
        eventually(lambda: not [row for row in listed(lab, 1) if row["port"] == 80])
        assert_over(caller, served)
        old.close()


def test_a_closed_inbound_connection_does_not_go_on_after_a_stop(lab: Lab) -> None:
    """Past fault: its entry was removed when all clients were stopped."""
    send(lab, 1, "Interface:wan2")
    with inbound(lab) as (caller, served):
        old = lab.client(1).connect()
        close_inbound(lab)
        with stopped(lab):
            eventually(lambda: not [row for row in listed(lab, 1) if row["port"] == 80])
        caller.sendall(b"again")
        assert_over(caller, served)
        old.close()


def test_a_closed_inbound_connection_is_refused_for_a_day(lab: Lab) -> None:
    """Past fault: its entry expired after 30 s in which nothing was sent, and the next packet from
    outside began the connection anew.
    """
    send(lab, 1, "DIRECT")
    with inbound(lab) as (caller, _):
        close_inbound(lab)
        port = str(caller.getsockname()[1])
        listing = lab.router.run("conntrack", "-L", "-p", "tcp", "--orig-port-src", port)
        (entry,) = listing.stdout.splitlines()
        assert f"mark={MARK_REJECT}" in entry
        assert int(entry.split()[2]) > TIMEOUT_S - 60


def test_a_connection_that_is_gone_is_named(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    answer = lab.api.ask("DELETE", f"/ops/connections/7?client={lab.client(1).address}")
    assert answer.body == {"error": f"{lab.client(1).address} has no connection 7 any more"}
