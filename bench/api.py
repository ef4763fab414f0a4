"""The API under load: large imports, lists of many rules, many writers, reads beside writes.

A write is timed until it is answered, when it is stored and in force. Paced requests are timed
from when they were due, so that a stall counts for every request that it held up.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench.arguments import Arguments
from bench.changes import Connection, address
from bench.figures import keep, show, spread
from egressd_lab.device import API_PREFIX
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec

RULES = 10_000
NODES = 2_000
ROUNDS = 3
READS = 300
WRITERS = 32
READERS = 20
READS_PER_S = 200
PACED_WRITERS = 4
WRITES_PER_S = 20
SECONDS = 30

Figures = dict[str, float | str]


class Reader(Connection):
    """A connection that reads lists and leaves their JSON alone."""

    def fetch(self, path: str, etag: str = "") -> tuple[int, str, int]:
        """Return status, entity tag and size of the answer to a GET."""
        headers = {"Authorization": f"Bearer {self._token}"}
        if etag:
            headers["If-None-Match"] = etag
        self._http.request("GET", API_PREFIX + path, headers=headers)
        response = self._http.getresponse()
        body = response.read()
        return response.status, response.headers["ETag"], len(body)


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def rounds(samples: list[float]) -> Figures:
    """Return minimum, median and maximum of a few long samples."""
    return {"min": min(samples), "p50": median(samples), "max": max(samples)}


def import_nodes(api: Connection) -> Figures:
    """Return the seconds of imports of nodes, each into a device without any."""
    text = "\n".join(f"192.0.2.{n % 250 + 1},{1000 + n},u,p,node{n}" for n in range(NODES))
    body = {"type": "socks5", "text": text}
    samples = []
    for _ in range(ROUNDS):
        ids = [node["id"] for node in api.call("GET", "/nodes", None)["data"]]
        api.call("DELETE", "/nodes/batch", {"ids": ids})
        samples.append(timed(lambda: api.call("POST", "/nodes/import", body)))
    assert len(api.call("GET", "/nodes", None)["data"]) == NODES
    return rounds(samples)


def import_rules(api: Connection) -> Figures:
    """Return the seconds of imports of rules, each into a device without any."""
    targets = ("DIRECT", "Interface:wan1", "Interface:wan2", "REJECT")
    text = "\n".join(f"{address(n)},{targets[n % len(targets)]}," for n in range(RULES))
    samples = []
    for _ in range(ROUNDS):
        ips = [rule["ip"] for rule in api.call("GET", "/rules", None)["data"]]
        api.call("DELETE", "/rules/batch", {"ips": ips})
        samples.append(timed(lambda: api.call("POST", "/rules/import", {"text": text})))
    assert len(api.call("GET", "/rules", None)["data"]) == RULES
    return rounds(samples)


def read_unchanged(lab: Lab) -> dict[str, Figures]:
    """Return the milliseconds of ``GET /rules`` while nothing changes."""
    reader = Reader(lab)
    _, tag, size = reader.fetch("/rules")
    whole = [timed(lambda: reader.fetch("/rules")) * 1000 for _ in range(READS)]
    assert reader.fetch("/rules", tag)[0] == 304
    known = [timed(lambda: reader.fetch("/rules", tag)) * 1000 for _ in range(READS)]
    return {
        f"GET /rules, {size / 1e6:.1f} MB": {**spread(whole)},
        "GET /rules, If-None-Match": {**spread(known)},
    }


class Load:
    """Threads, each with its own connection, that send requests for some seconds."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self.errors: list[str] = []
        self._threads: list[threading.Thread] = []

    def add(self, samples: list[float], call: Callable[[int], object], every_s: float) -> None:
        """Add a thread that calls with 0, 1, 2, …, every `every_s` seconds, or without a pause if
        0.

        The milliseconds of each successful call are appended to `samples`.
        """

        def work() -> None:
            due = begun = time.perf_counter()
            number = 0
            while due < begun + self._seconds:
                time.sleep(max(0.0, due - time.perf_counter()))
                try:
                    call(number)
                except Exception as error:
                    self.errors.append(repr(error))
                    return
                finished = time.perf_counter()
                samples.append((finished - due) * 1000)
                number += 1
                due = due + every_s if every_s else finished

        self._threads.append(threading.Thread(target=work))

    def run(self) -> None:
        """Run all threads until they have ended."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()


class Writer:
    """Changes one rule, and keeps the change that was acknowledged last."""

    def __init__(self, lab: Lab, rule: dict[str, Any]) -> None:
        self.id = rule["id"]
        self.acknowledged = rule["comment"]
        self._api = Connection(lab)
        kept = ("ip", "mac", "is_enabled", "upload_limit_kbps", "download_limit_kbps")
        self._body = {field: rule[field] for field in kept}

    def write(self, number: int) -> None:
        """Give the rule another target and comment."""
        target = ("Interface:wan2", "DIRECT")[number % 2]
        body = {**self._body, "target_node": target, "comment": f"change {number}"}
        self._api.call("PUT", f"/rules/{self.id}", body)
        self.acknowledged = body["comment"]


def lost(lab: Lab, writers: list[Writer]) -> int:
    """Return the number of writers whose last acknowledged change is not on the device."""
    # On a new connection: the device has closed the connection that was idle during the load.
    rows = Connection(lab).call("GET", "/rules", None)["data"]
    comments = {rule["id"]: rule["comment"] for rule in rows}
    return sum(comments.get(writer.id) != writer.acknowledged for writer in writers)


def write_at_once(lab: Lab, api: Connection, seconds: int) -> Figures:
    """Measure the most changes that 32 writers complete, each of them of its own rule."""
    rules = api.call("GET", "/rules", None)["data"]
    writers = [Writer(lab, rule) for rule in rules[:WRITERS]]
    load, samples = Load(seconds), list[float]()
    for writer in writers:
        load.add(samples, writer.write, 0)
    load.run()
    return {
        **spread(samples),
        "per s": len(samples) / seconds,
        "errors": len(load.errors),
        "lost": lost(lab, writers),
    }


def read_and_write(lab: Lab, seconds: int, share: int = 1) -> dict[str, Figures]:
    """Measure reads of lists and of the status, beside writes, at a steady pace: one in `share` of
    the usual ones.
    """
    rules = Connection(lab).call("GET", "/rules", None)["data"]
    writers = [Writer(lab, rule) for rule in rules[:PACED_WRITERS]]
    load = Load(seconds)
    reads, writes = list[float](), list[float]()

    def reading(reader: Reader, path: str) -> Callable[[int], object]:
        return lambda _: reader.fetch(path)

    paths = ("/system/status", "/whitelist", "/vpn-lines", "/proxy-services", "/nodes")
    for number in range(READERS):
        call = reading(Reader(lab), paths[number % len(paths)])
        load.add(reads, call, share * READERS / READS_PER_S)
    for writer in writers:
        load.add(writes, writer.write, share * PACED_WRITERS / WRITES_PER_S)
    load.run()
    found: Figures = {"errors": len(load.errors), "lost": lost(lab, writers)}
    return {
        f"{READS_PER_S // share} reads/s": {**spread(reads), **found},
        f"{WRITES_PER_S // share} writes/s": {**spread(writes), **found},
    }


def main() -> None:
    """Measure imports, reads, concurrent writers, and reads beside writes."""
    arguments = Arguments("api", __doc__)
    arguments.number("--seconds", SECONDS, "the seconds of each of the two loads")
    given = arguments.read()
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        api = Connection(lab)
        imports = {
            f"{NODES:,} nodes": import_nodes(api),
            f"{RULES:,} rules": import_rules(api),
        }
        show("imports, request to in force (s)", imports)
        lists = read_unchanged(lab)
        show(f"lists of {RULES:,} rules (ms)", lists)
        loads = {f"{WRITERS} writers": write_at_once(lab, api, given.seconds)}
        loads |= read_and_write(lab, given.seconds)
    average = os.getloadavg()[0]
    show(f"under load, {RULES:,} rules (ms); load average {average:.1f}", loads)
    figures = {"imports": imports, "lists": lists, "loads": loads, "load average": average}
    keep("api", figures, given.json)


if __name__ == "__main__":
    main()
