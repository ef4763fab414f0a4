"""A router with speed limits between clients and a server, and traffic to measure them by.

    guest (10.78.0.0/16) ── lan1 ┐
                                 ├─ router ── wan0 ── server (192.0.2.2)
   client (10.77.0.0/16) ── lan0 ┘

Every address of a LAN's network is the client's (a local route), so thousands of clients
need one namespace. The router forwards plainly; `Site.intercept` hands packets to the
server's port to a socket of the router's own, as the engine does (TPROXY).
"""

from __future__ import annotations

import re
import selectors
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from ipaddress import IPv4Address, IPv4Network
from typing import Final, NamedTuple, Self

from egressd.model.plan import Limit
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.tc import Shaper
from egressd.planner.topology import Topology
from tests.support.netns import Namespace

SERVER = "192.0.2.2"
ROUTER = "10.77.0.1"
PORT = 5201
"""The port of a measurement. A second one at the same time uses the next port."""
BUCKET_S = 0.05
PAYLOAD = 1400
"""Bytes of a UDP packet's payload; 28 more make the IP packet."""

_IP_TRANSPARENT = 19
_UDP_SEGMENT = 103
_RECEIVE_BUFFER_FORCE = 33
_TIMESTAMP = 35  # SO_TIMESTAMPNS
_DATAGRAM_MAX = 60_000
_TAG = struct.Struct("=I")
_TIME = struct.Struct("@ll")  # struct timespec

TOPOLOGY = Topology(
    lans=("lan0", "lan1"),
    lan_networks=(
        ("lan0", IPv4Network("10.77.0.0/16")),
        ("lan1", IPv4Network("10.78.0.0/16")),
    ),
    wans=("wan0",),
    router_addresses=tuple(map(IPv4Address, ("10.77.0.1", "10.78.0.1", "192.0.2.1"))),
)
ONE_ARM = Topology(
    lans=("lan0",),
    lan_networks=(("lan0", IPv4Network("10.77.0.0/16")),),
    wans=("lan0",),
    router_addresses=tuple(map(IPv4Address, ("10.77.0.1", "192.0.2.1"))),
)


def limits_state(shell: Callable[[str], str]) -> list[str]:
    """Return all parts of a router's limits, as lines of text in no order.

    Sets that traffic fills are left out. `shell` runs a script in the router, and returns its
    output.
    """
    shown = shell(
        """
        nft -s list table netdev egressd || true
        nft -s list table inet egressd || true
        for device in egressd-up0 egressd-down0 egressd-up64 egressd-down64; do
            ip -brief link show up dev $device | cut -d' ' -f1 || true
            tc qdisc show dev $device | sed 's/direct_packets_stat [0-9]*//' || true
            tc class show dev $device || true
        done
        """
    )
    return sorted(_FILLED_BY_TRAFFIC.sub("", shown).splitlines())


_FILLED_BY_TRAFFIC: Final = re.compile(
    r"\t(?:set|map) .+\n(?:\t\t.*\n)*?\t\tflags .*(?:dynamic|timeout).*\n(?:\t\t.*\n)*\t}\n"
)
"""Packets fill a set with ``dynamic``, and netd one with ``timeout`` alone: with flows."""


class Arrivals(NamedTuple):
    """Bytes of payload that arrived, in each 50 ms since the first."""

    buckets: tuple[int, ...]
    begun: float = 0.0
    """The time of the first byte, by the clock of the flows that were received together."""

    def rate(self, seconds: float, since: float = 0) -> float:
        """Return the mean bit/s in the `seconds` from `since` seconds after the first byte."""
        first = round(since / BUCKET_S)
        return sum(self.buckets[first : first + round(seconds / BUCKET_S)]) * 8 / seconds

    def peak(self) -> float:
        """Return the most bit/s of any whole second."""
        width = round(1 / BUCKET_S)
        windows = range(max(1, len(self.buckets) - width + 1))
        return max(sum(self.buckets[start : start + width]) * 8 for start in windows)


def joined(flows: Sequence[Arrivals]) -> Arrivals:
    """Return the arrivals of several flows, summed as of one."""
    begun = min(flow.begun for flow in flows)
    late = [round((flow.begun - begun) / BUCKET_S) for flow in flows]
    total = [0] * max(shift + len(flow.buckets) for shift, flow in zip(late, flows, strict=True))
    for shift, flow in zip(late, flows, strict=True):
        for place, size in enumerate(flow.buckets, shift):
            total[place] += size
    return Arrivals(tuple(total), begun)


class Site:
    """The namespaces. It is a context manager."""

    topology = TOPOLOGY

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.router, self.client, self.guest, self.server = (
                stack.enter_context(Namespace()) for _ in range(4)
            )
            self._build()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _build(self) -> None:
        self.router.shell("sysctl -qw net.ipv4.ip_forward=1")
        for number, lan in enumerate((self.client, self.guest)):
            self.router.shell(f"ip link add lan{number} type bridge; ip link set lan{number} up")
            self.router.cable(f"port{number}", lan, "eth0")
            self.router.shell(f"ip link set port{number} master lan{number}")
            self._address(lan, number)
        self.router.cable("wan0", self.server, "eth0")
        self.router.shell("ip address add 192.0.2.1/24 dev wan0")
        self.server.shell(
            f"ip address add {SERVER}/24 dev eth0; ip route add default via 192.0.2.1"
        )

    def _address(self, lan: Namespace, number: int) -> None:
        network = f"10.{77 + number}"
        self.router.shell(
            f"ip address add {network}.0.1/24 dev lan{number};"
            f"ip route add {network}.0.0/16 via {network}.0.254 dev lan{number}"
        )
        lan.shell(
            f"ip address add {network}.0.254/24 dev eth0;"
            f"ip route add local {network}.1.0/24 dev lo;"
            f"ip route add local {network}.128.0/17 dev lo;"
            f"ip route add default via {network}.0.1"
        )

    def limit(self, limits: Mapping[str, Limit]) -> int:
        """Make the router's limits exactly these."""
        return self.router.run(_sync, limits, self.topology)

    def intercept(self) -> None:
        """Hand packets from clients to the server's ports to transparent sockets of the router."""
        self.router.shell(
            f"""
            sysctl -qw net.bridge.bridge-nf-call-iptables=0
            ip rule add fwmark 1 lookup 100
            ip route add local default dev lo table 100
            nft -f - <<END
            table inet engine {{
              chain prerouting {{
                type filter hook prerouting priority mangle
                iifname {{ "lan0", "lan1" }} meta l4proto {{ tcp, udp }} \\
                  th dport {PORT}-{PORT + 1} meta mark set 1 tproxy ip to 127.0.0.1 accept
              }}
            }}
END
            """
        )


class OneArmSite(Site):
    """A site whose router has one interface as LAN and WAN: client and server share a switch."""

    topology = ONE_ARM

    def _build(self) -> None:
        switch = self.guest
        switch.shell("ip link add switch type bridge; ip link set switch up")
        for name, host, end in (
            ("p0", self.router, "lan0"),
            ("p1", self.client, "eth0"),
            ("p2", self.server, "eth0"),
        ):
            switch.cable(name, host, end)
            switch.shell(f"ip link set {name} master switch")
        self._address(self.client, 0)
        self.router.shell(
            """
            sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 \
              net.ipv4.conf.lan0.send_redirects=0
            ip address add 192.0.2.1/24 dev lan0
            nft -f - <<END
            table ip nat {
              chain postrouting {
                type nat hook postrouting priority srcnat
                ip saddr 10.77.0.0/16 ip daddr != 10.77.0.0/16 masquerade
              }
            }
END
            """
        )
        self.server.shell(f"ip address add {SERVER}/24 dev eth0")


def limit(number: int, upload: int = 0, download: int = 0) -> Limit:
    """Return a rule's limit, in Kbps."""
    return Limit(number=number, upload_kbps=upload, download_kbps=download)


def _sync(limits: Mapping[str, Limit], topology: Topology) -> int:
    return Shaper(Nft()).sync(limits, topology)


# --- TCP. ----------------------------------------------------------------------------------


def tcp(
    client: Namespace,
    server: Namespace,
    source: str,
    *,
    upload: bool,
    flows: int = 1,
    seconds: float = 10,
    target: str = SERVER,
    transparent: bool = False,
) -> Arrivals:
    """Send as fast as TCP can for `seconds`, and return the arrivals on the other side."""
    return start_tcp(
        client,
        server,
        source,
        upload=upload,
        flows=flows,
        seconds=seconds,
        target=target,
        transparent=transparent,
    )()


def start_tcp(
    client: Namespace,
    server: Namespace,
    source: str,
    *,
    upload: bool,
    flows: int = 1,
    seconds: float = 10,
    target: str = SERVER,
    transparent: bool = False,
    port: int = PORT,
) -> Callable[[], Arrivals]:
    """Start `tcp` without waiting, and return a function that waits. Each call at the same time
    needs its own port.
    """
    far = server.start(listen, flows, seconds, upload, (target, port), transparent)
    near = client.start(connect, source, (target, port), flows, seconds, not upload)

    def result() -> Arrivals:
        sent, received = (near, far) if upload else (far, near)
        arrivals = received.result()
        sent.result()
        return arrivals

    return result


def listen(
    flows: int, seconds: float, receives: bool, end: tuple[str, int], transparent: bool = False
) -> Arrivals:
    """Serve `flows` connections: receive, or send, for `seconds`."""
    address, port = end
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if transparent:
            listener.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
        listener.bind(("127.0.0.1" if transparent else address, port))
        listener.listen(64)
        listener.settimeout(20)
        connections = [listener.accept()[0] for _ in range(flows)]
    return _pump(connections, seconds, receives)


def connect(
    source: str, end: tuple[str, int], flows: int, seconds: float, receives: bool
) -> Arrivals:
    """Open `flows` connections: receive, or send, for `seconds`."""
    return _pump([_connected(source, end) for _ in range(flows)], seconds, receives)


def _connected(source: str, end: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + 5
    while True:
        try:
            return socket.create_connection(end, 10, (source, 0))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _pump(connections: Sequence[socket.socket], seconds: float, receives: bool) -> Arrivals:
    arrivals = _Tally()
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.setblocking(False)
            selector.register(
                connection, selectors.EVENT_READ if receives else selectors.EVENT_WRITE
            )
        deadline = time.monotonic() + seconds
        chunk = bytes(1 << 16)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                active = key.fileobj
                assert isinstance(active, socket.socket)
                try:
                    size = len(active.recv(1 << 17)) if receives else active.send(chunk)
                except ConnectionError:  # the other side ended first
                    size = 0
                if not size:
                    selector.unregister(active)
                elif receives:
                    arrivals.add(0, size, time.monotonic())
        for connection in connections:
            # Reset it, or the queued data would continue for long after the end.
            linger = struct.pack("=ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.close()
    return arrivals.result().get(0, Arrivals(()))


# --- UDP. ----------------------------------------------------------------------------------


def udp(
    sender: Namespace,
    receiver: Namespace,
    pairs: Sequence[tuple[str, str]],
    *,
    kbps: float,
    seconds: float = 10,
    payload: int = PAYLOAD,
) -> dict[int, Arrivals]:
    """Send from each pair's first address to its second at `kbps` of payload each, for `seconds`,
    and return the arrivals of each.
    """
    far = receiver.start(udp_receive, seconds + 1)
    sending = sender.start(udp_send, pairs, kbps, seconds, payload)
    arrivals = far.result()
    sending.result()
    return arrivals


def udp_send(
    pairs: Sequence[tuple[str, str]],
    kbps: float,
    seconds: float,
    payload: int = PAYLOAD,
    first: int = 0,
) -> None:
    """Send round robin, evenly. Each packet has the number of its pair, from `first` on.

    The packets of one pair that are due together go out in one call, as one large packet to be
    segmented (UDP_SEGMENT), so that this process does not limit a fast flow.
    """
    sockets = []
    for number, (source, target) in enumerate(pairs, first):
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
        opened.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, payload)
        opened.bind((source, 0))
        opened.connect((target, PORT))
        sockets.append((opened, _TAG.pack(number) + bytes(payload - _TAG.size)))
    at_once = _DATAGRAM_MAX // payload if len(sockets) == 1 else 1
    interval = payload * 8 / (kbps * 1000 * len(pairs))
    time.sleep(0.2)
    begun = time.monotonic()
    sent = 0
    while (now := time.monotonic()) < begun + seconds:
        due = int((now - begun) / interval)
        while sent < due:
            opened, data = sockets[sent % len(sockets)]
            count = min(at_once, due - sent)
            with suppress(ConnectionRefusedError):
                opened.send(data * count)
            sent += count
        time.sleep(0.001)


def udp_receive(seconds: float) -> dict[int, Arrivals]:
    """Receive for `seconds` from the first packet on, and return the arrivals by number of the
    pair.

    The kernel's timestamps count, since on a busy machine this process reads packets later.
    """
    tally = _Tally()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER_FORCE, 1 << 24)
        opened.setsockopt(socket.SOL_SOCKET, _TIMESTAMP, 1)
        opened.bind(("", PORT))
        opened.settimeout(5)
        deadline = time.monotonic() + seconds + 5
        while time.monotonic() < deadline:
            try:
                data, [(_, _, stamp)], _, _ = opened.recvmsg(1 << 16, 64)
            except TimeoutError:
                break
            if not tally.begun:
                deadline = time.monotonic() + seconds
                opened.settimeout(1)  # a busy machine may pause for half of that
            (flow,) = _TAG.unpack_from(data)
            whole, nanoseconds = _TIME.unpack(stamp)
            tally.add(flow, len(data), whole + nanoseconds / 1e9)
    return tally.result()


class _Tally:
    def __init__(self) -> None:
        self.begun: dict[int, float] = {}
        self._buckets: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))

    def add(self, flow: int, size: int, now: float) -> None:
        begun = self.begun.setdefault(flow, now)
        self._buckets[flow][int((now - begun) / BUCKET_S)] += size

    def result(self) -> dict[int, Arrivals]:
        return {
            flow: Arrivals(
                tuple(buckets.get(n, 0) for n in range(max(buckets) + 1)), self.begun[flow]
            )
            for flow, buckets in self._buckets.items()
        }
