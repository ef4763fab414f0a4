"""The cost of a router: plain Linux, egressd's DIRECT and Interface, and peers' direct outbounds.

Equal labs stand side by side, each with another program in its router. All are measured in turn,
again and again, and each begins in its turn. The two ends of the traffic have a core each. A
reported ratio is the median of the rounds' own ratios to plain forwarding.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from ipaddress import IPv4Network

from bench import ends, peers
from bench.arguments import Arguments
from bench.changes import fill
from bench.figures import keep
from bench.sites import GIGA, SERVER, Measure, Site, compare, egressd_pids
from egressd_lab.device import rule_body
from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from egressd_lab.spec import LabSpec

ROUNDS = 5
SECONDS = 2
SETTLE_S = 0.5
"""Seconds to wait after a rule's change, so that the clean-up is not measured as forwarding."""
_TRIES, _LISTENS_AGAIN_S = 3, 0.5
"""Tries, and the seconds between them: iperf3's server does not listen for a moment
after each run.
"""
RULES = (10, 1_000, 10_000)
PLAIN = "plain Linux"
TARGETS = {"DIRECT": "DIRECT", "Interface": "Interface:wan1"}
CLIENT = 1
"""The client that sends, in every comparison: two clients of one router differ by a tenth, always
the same one.
"""


class Way:
    """One way through one router: all its figures."""

    def __init__(
        self,
        site: Site,
        seconds: int,
        target: str = "",
        *,
        by_network: bool = False,
        in_kernel: bool = True,
        kbps: int = 0,
    ) -> None:
        """With `by_network` the client has its target by a CIDR rule; `kbps` is its limit, up and
        down.
        """
        self._site = site
        self._seconds = seconds
        self._target = target
        self._by_network = by_network
        self._in_kernel = in_kernel
        self._kbps = kbps
        self._client = site.lab.client(CLIENT)

    def measure(self) -> dict[str, float]:
        """Return one sample of each figure."""
        source = self._client.address
        if self._target:
            by_network, kbps = self._by_network, self._kbps
            move(self._site.lab, source, self._target, by_network=by_network, kbps=kbps)
        gbits, cost = self._transfer()
        packets, packet_cost = self._flood()
        found = {
            "TCP up (Gbit/s)": gbits,
            "TCP down (Gbit/s)": self._transfer("-R")[0],
            "CPU (s/GB)": cost,
            "small packets (1/s)": packets,
            "CPU of a small packet (µs)": packet_cost,
            "connections (1/s)": self._site.client(CLIENT, ends.connections, source, SERVER),
            "round trip (µs)": self._site.client(CLIENT, ends.round_trip, source, SERVER),
        }
        if self._in_kernel:
            cost = self._site.client(CLIENT, ends.packet_cost, source, SERVER)
            found["CPU of a small packet in the kernel (ns)"] = cost
            cost = self._site.client(CLIENT, ends.first_packet_cost, source, SERVER)
            found["CPU of a flow's first packet (ns)"] = cost
        return found

    def _transfer(self, *options: str) -> tuple[float, float]:
        """Return Gbit/s, and the CPU seconds per GB of both ends and all between them."""
        end, used = self._iperf(*options)
        received = end["sum_received"]
        return received["bits_per_second"] / GIGA, used * GIGA / received["bytes"]

    def _flood(self) -> tuple[float, float]:
        """Return the 64-byte datagrams that arrive a second, and the microseconds that each of them
        cost.
        """
        end, used = self._iperf("-u", "-l", "64", "-b", "0")
        total = end["sum"]
        arrived = total["packets"] - total["lost_packets"]
        return arrived / total["seconds"], used * 1e6 / arrived

    def _iperf(self, *options: str) -> tuple[dict[str, dict[str, float]], float]:
        """Return a run's summary, and the CPU seconds of both ends and all between them."""
        pinned = f"{ends.CLIENT_CORE},{ends.SERVER_CORE}"
        argv = ["iperf3", "-c", SERVER, "-B", self._client.address, "-A", pinned, "-J"]
        argv = exec_argv(self._client.host.namespace, [*argv, "-t", str(self._seconds), *options])
        for tries_left in reversed(range(_TRIES)):
            before = self._site.used_s()
            done = subprocess.run(argv, capture_output=True, check=False, text=True, timeout=60)
            between = self._site.used_s() - before
            result = json.loads(done.stdout)
            if "error" not in result:
                break
            if not tries_left:
                raise RuntimeError(f"iperf3: {result['error']}")
            time.sleep(_LISTENS_AGAIN_S)
        end: dict[str, dict[str, float]] = result["end"]
        percent = end["cpu_utilization_percent"]
        return end, (
            percent["host_total"] + percent["remote_total"]
        ) / 100 * self._seconds + between


@contextmanager
def iperf_server(site: Site) -> Iterator[None]:
    """Run an iperf3 server behind the WANs."""
    argv = exec_argv(site.lab.internet.namespace, ["iperf3", "-s", "-B", SERVER])
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def egressd(site: Site, rules: int) -> None:
    """Run egressd with `rules` rules."""
    lab = site.lab
    lab.start_egressd()
    lab.api.post("/nodes", lab.nodes["ss"].draft())
    fill(lab, rules)
    site.pids = egressd_pids(lab)


def move(lab: Lab, client: str, target: str, *, by_network: bool = False, kbps: int = 0) -> None:
    """Give a client a target and a limit by a rule of its own, or only by one of a network around
    it.
    """
    network = str(IPv4Network(f"{client}/31", strict=False))
    rules = {rule["ip"]: rule for rule in lab.api.get("/rules")["data"]}
    wanted, other = (network, client) if by_network else (client, network)
    limits = {"upload_limit_kbps": kbps, "download_limit_kbps": kbps}
    if wanted in rules:
        body = {**rule_body(rules[wanted]), "target_node": target, **limits}
        lab.api.put(f"/rules/{rules[wanted]['id']}", body)
    else:
        lab.api.post("/rules", {"ip": wanted, "target_node": target, **limits})
    if other in rules:
        lab.api.delete(f"/rules/{rules[other]['id']}")
    time.sleep(SETTLE_S)


def plain(stack: ExitStack, site: Site) -> None:
    """Let the router only forward and masquerade."""
    peers.bridge_apart(site.lab)
    stack.enter_context(site.lab.plain_router())


def peer(start: Callable[..., peers.Engine], site: Site) -> None:
    """Run a peer's engine."""
    site.pids = start(site.lab).pids


PEERS: Mapping[str, Callable[..., peers.Engine]] = {
    "sing-box TPROXY": partial(
        peers.with_tproxy, kind="sing-box", document=peers.sing_box([peers.DIRECT])
    ),
    "sing-box TUN": peers.direct_tun,
    "Xray TPROXY": partial(peers.with_tproxy, kind="xray", document=peers.xray([peers.FREEDOM])),
}


def main() -> None:
    """Measure all ways, in alternating rounds."""
    arguments = Arguments("forwarding", __doc__)
    arguments.number("--rounds", ROUNDS, "rounds of the comparison")
    arguments.number("--seconds", SECONDS, "seconds of each transfer")
    given = arguments.read()
    spec = LabSpec(nodes=("ss",), clients=21)
    with ExitStack() as stack:

        def site() -> Site:
            made = stack.enter_context(Site(spec))
            stack.enter_context(iperf_server(made))
            return made

        ways: dict[str, Measure] = {}
        first = site()
        plain(stack, first)
        ways[PLAIN] = Way(first, given.seconds).measure
        for rules in RULES:
            device = site()
            egressd(device, rules)
            for name, target in TARGETS.items():
                ways[f"egressd {name}, {rules:,} rules"] = Way(
                    device, given.seconds, target
                ).measure
        for name, start in PEERS.items():
            other = site()
            peer(start, other)
            ways[name] = Way(other, given.seconds, in_kernel=False).measure

        tables = compare("forwarding", ways, PLAIN, given.rounds)
    keep("forwarding", tables, given.json)


if __name__ == "__main__":
    main()
