"""A device in a known state: nodes and rules put there by the API, and taken away again."""

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

from egressd.lab.lab import Lab
from egressd.lab.observed import Seen
from egressd.model.errors import Failed
from tests.netd.engine.rig import is_stopped

SERVER = "203.0.113.10"
_TIMESTAMPS = 12


def add_nodes(lab: Lab) -> None:
    """Every node of the lab, under its name."""
    known = {node["name"] for node in lab.api.get("/nodes")["data"]}
    for node in lab.nodes.values():
        if node.name not in known:
            lab.api.post("/nodes", node.draft())


def send(lab: Lab, client: int, target: str) -> None:
    """Give a client its rule, or change the one it has."""
    rule(lab, lab.client(client).address, target)


def rule(lab: Lab, address: str, target: str) -> None:
    """Make the rule of an address or network, or change the one it has."""
    wanted = {"ip": address, "target_node": target}
    for known in lab.api.get("/rules")["data"]:
        if known["ip"] == address:
            lab.api.put(f"/rules/{known['id']}", {**wanted, **_REST})
            return
    lab.api.post("/rules", wanted)


def configure(lab: Lab, **settings: object) -> None:
    """Change settings of the device: by a backup of it in which they are what they should be."""
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
    """A port forward of the operator's own: a rule of nftables in another table."""
    chain = "{ type nat hook prerouting priority dstnat; }"
    lab.router.run("nft", "add", "table", "ip", "forwards")
    try:
        lab.router.run("nft", f"add chain ip forwards pre {chain}")
        lab.router.run("nft", f"add rule ip forwards pre {rule}")
        yield
    finally:
        lab.router.run("nft", "delete", "table", "ip", "forwards")


def asked(lab: Lab, since: int) -> list[Seen]:
    """What the internet's servers were asked but for what netd asks resolvers all the time."""
    seen = lab.internet.seen(since=since)
    return [each for each in seen if not each.text.startswith("a.root-servers.net")]


def clear(lab: Lab) -> None:
    """No rules and no nodes."""
    for rule in lab.api.get("/rules")["data"]:
        lab.api.delete(f"/rules/{rule['id']}")
    for node in lab.api.get("/nodes")["data"]:
        lab.api.delete(f"/nodes/{node['id']}")


def segments(lab: Lab, client: int) -> tuple[int, int]:
    """The MSS that a client goes by when it sends to the server, and the server when it answers.

    In bytes, with the 12 that timestamps take of them.
    """
    with lab.client(client).host.socket(SERVER, 7) as connected:
        own = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        listed = lab.internet.run("ss", "-Htin", "state", "established", "sport", "=", ":7").stdout
        found = re.search(r"\bmss:(\d+)", listed)
        assert found is not None, listed
        return own + _TIMESTAMPS, int(found[1]) + _TIMESTAMPS


def eventually(check: Callable[[], bool], seconds: float = 5.0) -> float:
    """How long it took until `check` held. Raises AssertionError when it never did."""
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
    """The engine's workers, or other processes, do nothing meanwhile."""
    pids = lab.device.pids(part)
    assert pids
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        eventually(lambda: all(map(is_stopped, pids)))
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def elements(lab: Lab, kind: str, name: str) -> str:
    """What a set of egressd's has in it, as nft prints it."""
    listed = lab.router.run("nft", "list", kind, "inet", "egressd", name).stdout
    return listed.partition("elements = {")[2].partition("}")[0].strip()
