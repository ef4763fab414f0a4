"""A device with speed limits, and its clients' traffic, measured behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from egressd_lab import netns
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, add_nodes
from tests.support.netns import JoinedNamespace, Namespace, Running
from tests.support.shaping import (
    PAYLOAD,
    PORT,
    Arrivals,
    limits_state,
    start_tcp,
    tcp,
    udp,
    udp_receive,
    udp_send,
)

UP, DOWN = 2_000, 4_000
"""Kbps."""
SECONDS = 3.0
GLANCE_S = 1.0
"""Seconds that are enough to see unlimited traffic, which is much faster."""
TARGETS = {1: "ss", 2: "Interface:wan2", 3: "DIRECT"}
BYSTANDER = 4
LIMITED = range(500, 1021)
"""Goodput in thousandths of the limit: see `shaped`."""
FAST = 3_000
"""Unlimited goodput exceeds it: thousandths of the limits here."""
GUEST = "10.78.0.11"


class Site:
    """A lab, and the namespaces that traffic is made and measured in."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        def joined(role: str) -> Namespace:
            return stack.enter_context(JoinedNamespace(netns.namespace(lab.name, role)))

        self.lab = lab
        self.internet, self.router = joined("internet"), joined("router")
        if lab.spec.second_lan:
            self.guest = joined("guest1")
        numbers = range(1, lab.spec.clients + 1)
        self._clients = {n: joined(lab.client(n).host.role) for n in numbers}

    def client(self, number: int) -> tuple[Namespace, str]:
        return self._clients[number], self.lab.client(number).address

    def put(self, address: str, target: str, up: int = 0, down: int = 0) -> None:
        """Give an address a rule, or change its rule."""
        body = {
            "ip": address,
            "mac": "",
            "comment": "",
            "is_enabled": True,
            "target_node": target,
            "upload_limit_kbps": up,
            "download_limit_kbps": down,
        }
        known = [rule for rule in self.rules() if rule["ip"] == address]
        if known:
            self.lab.api.put(f"/rules/{known[0]['id']}", body)
        else:
            self.lab.api.post("/rules", body)

    def rules(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.lab.api.get("/rules")["data"]
        return found

    def limit(self, number: int, up: int = UP, down: int = DOWN) -> None:
        self.put(self.lab.client(number).address, TARGETS[number], up, down)

    def tcp(self, number: int, *, upload: bool) -> Arrivals:
        (arrivals,) = self.tcp_of([number], upload=upload).values()
        return arrivals

    def tcp_of(
        self, numbers: Iterable[int], *, upload: bool, flows: int = 1
    ) -> dict[int, Arrivals]:
        """Return the arrivals of `flows` flows of each of these clients, all at the same time."""
        waits = {
            number: start_tcp(
                namespace,
                self.internet,
                address,
                upload=upload,
                flows=flows,
                seconds=SECONDS + 0.5,
                target=SERVER,
                port=PORT + number,
            )
            for number in numbers
            for namespace, address in [self.client(number)]
        }
        return {number: wait() for number, wait in waits.items()}

    def is_fast(self, number: int, *, upload: bool) -> bool:
        """True if a client's TCP is as fast as without a limit."""
        namespace, address = self.client(number)
        seconds = GLANCE_S + 0.2
        arrived = tcp(
            namespace, self.internet, address, upload=upload, seconds=seconds, target=SERVER
        )
        return share(arrived, UP if upload else DOWN, GLANCE_S) > FAST

    def udp_up(self, number: int, kbps: float = 2 * UP, seconds: float = SECONDS) -> Arrivals:
        namespace, address = self.client(number)
        pairs = [(address, SERVER)]
        return udp(namespace, self.internet, pairs, kbps=kbps, seconds=seconds)[0]

    def udp_up_of(
        self, numbers: Iterable[int], kbps: float = 2 * UP, seconds: float = SECONDS
    ) -> dict[int, Arrivals]:
        """Return the arrivals of the flows of these clients, all at the same time."""
        far = self.internet.start(udp_receive, seconds + 1)
        sending = [
            namespace.start(udp_send, [(address, SERVER)], kbps, seconds, PAYLOAD, number)
            for number in numbers
            for namespace, address in [self.client(number)]
        ]
        arrivals = far.result()
        for each in sending:
            each.result()
        return arrivals

    def flood(self, number: int, kbps: float = 2 * UP, seconds: float = 8) -> Running[None]:
        """Start to send UDP, without waiting for it."""
        namespace, address = self.client(number)
        return namespace.start(udp_send, [(address, SERVER)], kbps, seconds)

    def delete(self, address: str) -> None:
        for rule in self.rules():
            if rule["ip"] == address:
                self.lab.api.delete(f"/rules/{rule['id']}")

    def shell(self, script: str) -> str:
        return self.router.shell(script)

    def state(self) -> list[str]:
        return limits_state(self.shell)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the API's counters of each rule, by its address."""
        found: dict[str, dict[str, int]] = self.lab.api.ask("GET", "/ops/counters").body["data"]
        return found

    def counted(self) -> dict[str, int]:
        """Return class -> packets that it has let pass."""
        found = {}
        for text in self.shell("tc -s class show dev egressd-up0").split("class htb ")[1:]:
            words = text.split()
            found[words[0]] = int(words[words.index("Sent") + 3])
        return found


@contextmanager
def limited_site() -> Iterator[Site]:
    """Make a lab in which clients have limits, one for each target, and a bystander has none."""
    spec = LabSpec(nodes=("ss",), clients=4, second_lan=True)
    with Lab(spec) as lab, ExitStack() as stack:
        lab.start_egressd()
        add_nodes(lab)
        site = Site(lab, stack)
        for number in TARGETS:
            site.limit(number)
        site.put(lab.client(BYSTANDER).address, "DIRECT")
        yield site


def share(arrivals: Arrivals, kbps: int, seconds: float = SECONDS, since: float = 0) -> int:
    """Return goodput in thousandths of a limit."""
    return round(arrivals.rate(seconds, since) / kbps)
