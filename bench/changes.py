"""One client's move among many rules: from the request to the effect on a packet.

Every sample changes the target of one client by ``PUT /rules/{id}`` and then lets that client send
one datagram, whose exit must already be the new one. Other clients hold connections open meanwhile;
the benchmark counts how many of them were cut. The history is recorded meanwhile: with
``--seconds 65`` each measurement has one of its readings of all counters, which are made each
minute.
"""

from __future__ import annotations

import http.client
import itertools
import json
import time
from typing import Any

from bench.arguments import Arguments
from bench.figures import keep, show, spread
from egressd_lab.device import API_PORT, API_PREFIX, rule_body
from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS, LabSpec

RULES = (10, 1_000, 10_000)
SAMPLES = 300
BYSTANDERS = range(2, 22)
SERVER = "203.0.113.10"


class Connection:
    """One kept-alive connection to the API, as a platform holds it."""

    def __init__(self, lab: Lab) -> None:
        self._token = lab.api.token
        self._http = http.client.HTTPConnection(str(LAN_ADDRESS), API_PORT)
        self._http.sock = lab.router.socket(str(LAN_ADDRESS), API_PORT, 60)
        self._http.sock.settimeout(60)

    def call(self, method: str, path: str, body: object, prefix: str = API_PREFIX) -> Any:
        """Send one request and return the body of its answer."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._http.request(method, prefix + path, json.dumps(body), headers)
        response = self._http.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer


def address(number: int) -> str:
    """Return an address that no client of a lab has, a different one for each number."""
    return f"10.{80 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"


def fill(lab: Lab, rules: int) -> None:
    """Import `rules` rules, for addresses of which the lab's clients are the first."""
    rows = [f"{lab.client(number).address},DIRECT," for number in (1, *BYSTANDERS[:6])]
    # As in real use, the targets that the client moves between have other clients too.
    rows += ["10.77.0.240,ss,", "10.77.0.241,Interface:wan2,"]
    rows += [f"{lab.client(number).address},DIRECT," for number in BYSTANDERS[6:]]
    rows += [f"{address(n)},DIRECT," for n in range(rules)]
    lab.api.post("/rules/import", {"text": "\n".join(rows[:rules]), "replace": True})


class Mover:
    """The client whose rule changes its target. The rules have to be there."""

    def __init__(self, lab: Lab) -> None:
        self._client = lab.client(1)
        rules = lab.api.get("/rules")["data"]
        rule = next(rule for rule in rules if rule["ip"] == self._client.address)
        self._rule = rule["id"], rule_body(rule)
        self._api = Connection(lab)
        self._exits = {
            "Interface:wan2": lab.wan(2).address,
            "ss": lab.nodes["ss"].address,
            "DIRECT": lab.wan(1).address,
        }
        # Below the ports that the kernel gives out at random: a random one would now and then be
        # the port of an echo just before the move, whose flow is cut (docs/performance.md).
        # A session through a node stays a while, and a client may have 1,024 (docs/nodes.md): the
        # same ports again and again.
        self._ports = itertools.cycle(range(20_000, 20_000 + SAMPLES))

    def moved(self, count: int, seconds: float = 0.0) -> list[float]:
        """Change the target `count` times, and again until so many seconds have passed. Return the
        milliseconds of each change.
        """
        number, kept = self._rule
        samples: list[float] = []
        end = time.monotonic() + seconds
        for target in itertools.cycle(self._exits):
            if len(samples) >= count and time.monotonic() >= end:
                break
            begun = time.perf_counter()
            self._api.call("PUT", f"/rules/{number}", {**kept, "target_node": target})
            samples.append((time.perf_counter() - begun) * 1000)
            seen = self._client.udp_echo("which way", SERVER, source_port=next(self._ports)).seen
            assert seen == self._exits[target], f"{seen} after a move to {target}"
        return samples


def measure(lab: Lab, rules: int, seconds: float) -> dict[str, float]:
    """Return the latencies in milliseconds."""
    fill(lab, rules)
    others = [
        lab.client(number).connect()
        for number in BYSTANDERS[: 6 if rules < len(BYSTANDERS) else None]
    ]
    samples = Mover(lab).moved(SAMPLES, seconds)
    cut = sum(not connection.exchange("still there").ok for connection in others)
    for connection in others:
        connection.close()
    return {**spread(samples), "others cut": cut}


def main() -> None:
    """Measure with 10, 1,000 and 10,000 rules."""
    arguments = Arguments("changes", __doc__)
    arguments.number("--seconds", 0.0, "seconds that the changes of each number of rules go on for")
    given = arguments.read()
    rows = {}
    with Lab(LabSpec(clients=max(BYSTANDERS), nodes=("ss",))) as lab:
        lab.start_egressd()
        lab.api.post("/nodes", lab.nodes["ss"].draft())
        for rules in RULES:
            rows[f"{rules:,} rules"] = measure(lab, rules, given.seconds)
    show("one client's move, request to effect (ms)", rows)
    keep("changes", rows, given.json)


if __name__ == "__main__":
    main()
