"""The cost of an import of nodes: reading 2,000 nodes, and the api's memory for a large text.

Reading is timed by the process's own clock, in this process. Memory is the growth, at its peak, of
a process that contains the whole api (and a double in place of netd), its own copies of the request
included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from bench.arguments import Arguments
from bench.figures import keep, show
from egressd.formats.nodes import parse_nodes
from egressd.formats.rows import Accepted

NODES = 2000
ROUNDS = 9
LARGE = 16 * 1024 * 1024 - 64 * 1024
"""Bytes of text that a request may have, less its other fields and the escapes of JSON."""
UUID = "b831381d-6324-4d53-ad4f-8cda48b3{:04x}"


def link(n: int) -> str:
    """Return a share link, of five kinds in turn."""
    uuid, host = UUID.format(n % 65536), f"n{n}.example.net"
    document = {"v": "2", "ps": f"🇭🇰 {n}", "add": host, "port": "443", "id": uuid, "aid": "0"}
    document |= {"net": "ws", "host": "h.example.net", "path": "/w", "tls": "tls"}
    kinds = (
        f"vless://{uuid}@{host}:443?security=reality&sni=s.example.net&fp=chrome&sid=01ab"
        f"&pbk=jNXHt1yRo0vDuchQlIP6Z0ZvjT3KtzVI-T4E7RoLJS0&flow=xtls-rprx-vision#HK%20{n}",
        "vmess://" + b64encode(json.dumps(document).encode()).decode(),
        f"trojan://pw@{host}:443?sni=s.example.net&type=ws&host=h.example.net&path=%2Fw#t{n}",
        f"ss://YWVzLTI1Ni1nY206cHc@{host}:8388#s{n}",
        f"hysteria2://pw@{host}:443?sni=s.example.net&obfs=salamander&obfs-password=x#h{n}",
    )
    return kinds[n % len(kinds)]


def entry(n: int) -> dict[str, Any]:
    """Return a Clash entry, of three kinds in turn."""
    server = {"server": f"n{n}.example.net", "port": 443, "udp": True}
    return (
        {"name": f"🇭🇰 香港 {n} 🚀", "type": "vmess", **server, "uuid": UUID.format(n % 65536)}
        | {"alterId": 0, "cipher": "auto", "tls": True, "servername": "s.example.net"}
        | {"network": "ws", "ws-opts": {"path": "/w", "headers": {"Host": "h.example.net"}}},
        {"name": f"🇯🇵 t{n}", "type": "trojan", **server, "password": "pw", "sni": "s.example.net"},
        {"name": f"s{n}", "type": "ss", **server, "cipher": "aes-128-gcm", "password": "pw"},
    )[n % 3]


def flow(value: Any) -> str:
    """Return a value in YAML's brackets, as panels write it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def block(value: dict[str, Any], indent: str) -> str:
    """Return a mapping in YAML's lines."""
    lines = (
        f"{key}:\n{block(item, indent + '  ')}"
        if isinstance(item, dict)
        else f"{key}: {flow(item)}"
        for key, item in value.items()
    )
    return "\n".join(indent + line for line in lines)


def clash(write: Callable[[dict[str, Any]], str], nodes: int = NODES) -> str:
    """Return a configuration with `nodes` nodes."""
    return "mode: rule\nproxies:\n" + "\n".join(f"  - {write(entry(n))}" for n in range(nodes))


def links() -> str:
    """Return share links, one a line."""
    return "\n".join(map(link, range(NODES)))


TEXTS: dict[str, Callable[[], str]] = {
    "links": links,
    "a subscription's base64": lambda: b64encode(links().encode()).decode(),
    "Clash, in brackets": lambda: clash(flow),
    "Clash, in lines": lambda: clash(lambda e: block(e, "    ").lstrip()),
    "Clash, as JSON": lambda: json.dumps({"proxies": list(map(entry, range(NODES)))}),
}


def reading(text: str) -> float:
    """Return the milliseconds of CPU time that reading takes, at best."""
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        nodes = sum(isinstance(row, Accepted) for row in parse_nodes("others", text))
        best = min(best, time.process_time() - begun)
        assert nodes == NODES, nodes
    return best * 1000


def large() -> bytes:
    """Return as many Clash entries as a request may have."""
    head, lines, size, n = b"proxies:\n", [], 0, 0
    while size < LARGE:
        lines.append(f"  - {flow(entry(n))}\n".encode())
        size += len(lines[-1]) + 1
        n += 1
    return head + b"".join(lines[:-1])


def memory(text: bytes) -> dict[str, float]:
    """Return the number of imported nodes, and the MiB by which the api grew at its peak."""
    argv = [sys.executable, "-m", "tests.api.import_peak"]
    told = subprocess.run(argv, input=text, check=True, capture_output=True).stdout
    status, nodes, grown = map(int, told.split()[-3:])
    assert status == 200, told
    size = len(text) / 2**20
    return {"MiB": size, "nodes": nodes, "grown by": grown / 2**20, "times": grown / len(text)}


def main() -> None:
    """Measure, and show the figures."""
    given = Arguments("imports", __doc__).read()
    times = {name: {"ms": reading(make())} for name, make in TEXTS.items()}
    show(f"{NODES:,} nodes, read", times)
    peaks = {"Clash entries": memory(large())}
    show("the api's memory, at its peak", peaks)
    keep("imports", {"times": times, "memory": peaks}, given.json)


if __name__ == "__main__":
    main()
