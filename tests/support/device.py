"""A device in a known state: functions that add nodes and rules by the API, and remove them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from tempfile import TemporaryDirectory

from egressd.model.errors import Failed
from egressd_lab.lab import Lab
from egressd_lab.observed import Seen
from tests.support.engine import is_stopped

SERVER = "203.0.113.10"
_TIMESTAMPS = 12


def add_nodes(lab: Lab) -> None:
    """Add every node of the lab, under its name."""
    known = {node["name"] for node in lab.api.get("/nodes")["data"]}
    for node in lab.nodes.values():
        if node.name not in known:
            lab.api.post("/nodes", node.draft())


def send(lab: Lab, client: int, target: str) -> None:
    """Give a client a rule, or change its rule."""
    rule(lab, lab.client(client).address, target)


def rule(lab: Lab, address: str, target: str) -> None:
    """Make the rule of an address or network, or change the existing one."""
    wanted = {"ip": address, "target_node": target}
    for known in lab.api.get("/rules")["data"]:
        if known["ip"] == address:
            lab.api.put(f"/rules/{known['id']}", {**wanted, **_REST})
            return
    lab.api.post("/rules", wanted)


def remove_rule(lab: Lab, address: str) -> None:
    """Delete the rule of an address or network."""
    (known,) = (each for each in lab.api.get("/rules")["data"] if each["ip"] == address)
    lab.api.delete(f"/rules/{known['id']}")


def configure(lab: Lab, **settings: object) -> None:
    """Change settings of the device: restore a backup of it that has the new values."""
    with TemporaryDirectory() as folder:
        file = f"{folder}/device.backup"
        lab.device.run("backup", file)
        with closing(sqlite3.connect(file)) as database, database:
            database.executemany(
                "INSERT OR REPLACE INTO settings VALUES (?, ?)",
                [(name, json.dumps(value)) for name, value in settings.items()],
            )
        lab.device.run("restore", file)


@contextmanager
def port_forward(lab: Lab, rule: str) -> Iterator[None]:
    """Add a port forward of the operator's own for the block, as a rule in another table."""
    chain = "{ type nat hook prerouting priority dstnat; }"
    lab.router.run("nft", "add", "table", "ip", "forwards")
    try:
        lab.router.run("nft", f"add chain ip forwards pre {chain}")
        lab.router.run("nft", f"add rule ip forwards pre {rule}")
        yield
    finally:
        lab.router.run("nft", "delete", "table", "ip", "forwards")


@contextmanager
def stopped(lab: Lab) -> Iterator[None]:
    """Stop the device by its API for the block."""
    assert lab.api.ask("POST", "/ops/stop", {}).status == 200
    try:
        yield
    finally:
        assert lab.api.ask("POST", "/ops/start", {}).status == 200


def asked(lab: Lab, since: int) -> list[Seen]:
    """Return the requests that the internet's servers saw, without netd's constant queries to
    resolvers.
    """
    seen = lab.internet.seen(since=since)
    return [each for each in seen if not each.text.startswith("a.root-servers.net")]


def clear(lab: Lab) -> None:
    """Delete all rules and all nodes."""
    for rule in lab.api.get("/rules")["data"]:
        lab.api.delete(f"/rules/{rule['id']}")
    for node in lab.api.get("/nodes")["data"]:
        lab.api.delete(f"/nodes/{node['id']}")


def segments(lab: Lab, client: int) -> tuple[int, int]:
    """Return the MSS that a client uses towards the server, and the server's towards the client.

    Both are in bytes, including the 12 that timestamps take of them.
    """
    with lab.client(client).host.socket(SERVER, 7) as connected:
        own = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        listed = lab.internet.run("ss", "-Htin", "state", "established", "sport", "=", ":7").stdout
        found = re.search(r"\bmss:(\d+)", listed)
        assert found is not None, listed
        return own + _TIMESTAMPS, int(found[1]) + _TIMESTAMPS


def eventually(check: Callable[[], bool], seconds: float = 20.0) -> float:
    """Wait until `check` holds, and return the seconds it took. Raises AssertionError after
    `seconds`.
    """
    begun = time.monotonic()
    while True:
        with suppress(Failed):
            if check():
                return time.monotonic() - begun
        passed = time.monotonic() - begun
        assert passed < seconds, f"not so within {seconds} s"
        time.sleep(0.02)


_REST = {
    "mac": "",
    "comment": "",
    "is_enabled": True,
    "upload_limit_kbps": 0,
    "download_limit_kbps": 0,
}


@contextmanager
def suspended(lab: Lab, part: str = "egressd.netd.engine.worker") -> Iterator[None]:
    """Stop the engine's workers, or other processes, for the block. The supervisor, which would
    replace netd or the api, is stopped with them.
    """
    pids = lab.device.pids(part)
    assert pids
    if part.startswith("egressd.app"):
        pids.append(lab.device.program.pid)
    try:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGSTOP)
        eventually(lambda: all(map(is_stopped, pids)))
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def elements(lab: Lab, kind: str, name: str) -> str:
    """Return the elements of a set of egressd's, as nft prints them."""
    listed = lab.router.run("nft", "list", kind, "inet", "egressd", name).stdout
    return listed.partition("elements = {")[2].partition("}")[0].strip()


def kill(lab: Lab, part: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Send the signal to the processes of a part of the device."""
    pids = lab.device.pids(part)
    assert pids, f"no process of {part}"
    for pid in pids:
        os.kill(pid, number)


def limit(lab: Lab, client: int, kbps: int) -> None:
    """Limit the download of a client."""
    limit_rule(lab, lab.client(client).address, kbps)


def limit_rule(lab: Lab, address: str, kbps: int) -> None:
    """Limit the download of an address or network, by its rule."""
    body = {"ips": [address], "update_download": True, "download_limit_kbps": kbps}
    lab.api.patch("/rules/batch/limits", {**body, "update_upload": False, "upload_limit_kbps": 0})
