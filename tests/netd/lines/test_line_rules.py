"""The guard's rules in the kernel: access to the port of a line without a secret."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from egressd.planner.lines import line_rules as lines_guard
from egressd.planner.registry import CLEAR_LINE_PORTS
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

OWN, SERVER, STRANGER = "192.0.2.2", "192.0.2.9", "192.0.2.66"
PPTP = bytes.fromhex("3001880b 0004002a 00000000 ff03c021")
"""GRE of a PPTP tunnel that carries four bytes (RFC 2637, 4.1)."""
GRE = bytes.fromhex("00000800 45000014")
_HEADER = 20
"""Bytes of an IPv4 header without options."""
_DONT_FRAGMENT = 0x40
PORT, OTHER = CLEAR_LINE_PORTS[0], CLEAR_LINE_PORTS[-1]

TABLE = f"""
table inet guard {{
    set lannet {{ type ipv4_addr; flags interval; }}
    {"; ".join(f"set {name} {{ {made.spec}; }}" for name, made in lines_guard.SETS.items())}
    chain output {{
        type filter hook output priority filter
        {"; ".join(lines_guard.OUTPUT)}
    }}
    chain input {{
        type filter hook input priority filter
        {"; ".join((*lines_guard.INPUT, *lines_guard.STRANGERS))}
    }}
    chain unasked {{
        type nat hook prerouting priority -99
        {"; ".join(lines_guard.UNASKED)}
    }}
}}
"""


@pytest.fixture
def far(namespace: Namespace) -> Iterator[Namespace]:
    """The network that the line's server and a stranger are in."""
    with Namespace() as made:
        namespace.cable("wan1", made, "far0")
        namespace.shell(f"ip address add {OWN}/24 dev wan1")
        made.shell(f"ip address add {SERVER}/24 dev far0; ip address add {STRANGER}/24 dev far0")
        yield made


def _enter(host: Namespace) -> None:
    """Make this thread, and so the sockets that it makes, join the network of `host`."""
    with Path(host.path).open() as descriptor:
        if ctypes.CDLL(None).setns(descriptor.fileno(), 0):
            raise OSError("setns")


def bound(host: Namespace, address: str, port: int) -> socket.socket:
    """Return a UDP socket of that host, which belongs to it wherever it is used."""
    return _socket(host, address, port, socket.SOCK_DGRAM)


def raw(host: Namespace, address: str) -> socket.socket:
    """Return the same for GRE."""
    return _socket(host, address, 0, socket.SOCK_RAW, socket.IPPROTO_GRE)


def _socket(host: Namespace, address: str, port: int, *kind: int) -> socket.socket:
    def make() -> socket.socket:
        _enter(host)
        made = socket.socket(socket.AF_INET, *kind)
        made.bind((address, port))
        made.settimeout(1)
        return made

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(make).result()


def heard(
    own: socket.socket, callers: dict[str, socket.socket], to: int = PORT, *, least: int = 0
) -> set[str]:
    """Return the names of the callers whose datagrams to the port `own` gets: `least` of them, for
    which it waits longer.
    """
    for name, caller in callers.items():
        caller.sendto(name.encode(), (OWN, to))
    found: set[str] = set()
    with suppress(TimeoutError):
        own.settimeout(10)
        while len(found) < least:
            found.add(own.recv(100).decode())
        own.settimeout(0.3)
        while True:
            found.add(own.recv(100).decode())
    return found


def test_only_the_dialled_server_may_reply(namespace: Namespace, far: Namespace) -> None:
    with ExitStack() as stack:

        def udp(host: Namespace, address: str, port: int) -> socket.socket:
            return stack.enter_context(bound(host, address, port))

        own, other = (udp(namespace, OWN, port) for port in (PORT, OTHER))
        callers = {
            "server": udp(far, SERVER, 1701),
            "its other port": udp(far, SERVER, 5701),
            "stranger": udp(far, STRANGER, 1701),
        }
        assert heard(own, callers, least=3) == set(callers), "so far nobody is kept away"
        namespace.shell(f"conntrack -F; nft -f - <<'END'\n{TABLE}\nEND")
        assert heard(own, callers) == set()
        own.sendto(b"SCCRQ", (SERVER, 1701))
        # The first answer does not come from the called port.
        only = {"its other port": callers["its other port"]}
        assert heard(own, only, least=1) == {"its other port"}
        assert heard(own, callers, least=2) == {"server", "its other port"}
        assert heard(other, callers, OTHER) == set(), "that line has not called anybody"
        # An answered flow continues after the entry of the call is gone.
        namespace.shell("nft flush set inet guard called")
        own.sendto(b"ZLB", (SERVER, 5701))
        assert heard(own, callers, least=2) == {"server", "its other port"}
        # Another line's call to the stranger does not let it talk to this one.
        other.sendto(b"SCCRQ", (STRANGER, 1701))
        assert heard(other, callers, OTHER, least=1) == {"stranger"}
        assert "stranger" not in heard(own, callers)


def test_p1_packets_of_a_line_do_not_leave_by_another_interface(
    namespace: Namespace, far: Namespace
) -> None:
    """Past fault: a line without a secret, or a PPTP line, that is pinned to a WAN sent by another
    WAN for moments after its own WAN had its address back, because the policy rule is gone with the
    address.
    """
    away = "203.0.113.9"
    with Namespace() as elsewhere, ExitStack() as opened:
        namespace.cable("wan2", elsewhere, "far2")
        namespace.shell(f"ip address add 198.51.100.2/24 dev wan2; ip route add {away} dev wan2")
        elsewhere.shell(f"ip address add {away}/32 dev far2; ip route add {OWN} dev far2")
        namespace.shell(f"nft -f - <<END\n{TABLE}\nEND")
        there = opened.enter_context(bound(elsewhere, away, 1701))
        tunnel = opened.enter_context(raw(elsewhere, away))

        def arrives(sender: socket.socket, to: socket.socket, packet: bytes = b"in clear") -> bool:
            # The sender gets an error for a packet dropped before it leaves.
            with sender, suppress(TimeoutError, PermissionError):
                sender.sendto(packet, (away, 1701))
                return to.recv(100).endswith(packet)
            return False

        assert arrives(bound(namespace, "198.51.100.2", PORT), there)
        assert arrives(bound(namespace, OWN, 9999), there), "nothing else is held"
        assert not arrives(bound(namespace, OWN, PORT), there)
        assert arrives(raw(namespace, "198.51.100.2"), tunnel, PPTP)
        assert arrives(raw(namespace, OWN), tunnel, GRE), "nor are other tunnels"
        assert not arrives(raw(namespace, OWN), tunnel, PPTP)


def test_p1_only_the_pptp_server_of_a_line_is_heard_on_its_carrier(
    namespace: Namespace,
) -> None:
    with Namespace() as far, ExitStack() as opened:
        namespace.cable("l2tp_1", far, "far0")
        namespace.shell(f"ip address add {OWN}/24 dev l2tp_1")
        far.shell(f"ip address add {SERVER}/24 dev far0; ip address add {STRANGER}/24 dev far0")
        own = opened.enter_context(raw(namespace, OWN))
        callers = {name: opened.enter_context(raw(far, name)) for name in (SERVER, STRANGER)}

        def known(packet: bytes = PPTP) -> set[str]:
            """Return the senders whose packets arrive."""
            for caller in callers.values():
                caller.sendto(packet, (OWN, 0))
            found = set()
            own.settimeout(0.3)
            with suppress(TimeoutError):
                while True:
                    found.add(own.recvfrom(100)[1][0])
            return found

        assert known() == set(callers), "so far nobody is kept away"
        namespace.shell(f"conntrack -F; nft -f - <<'END'\n{TABLE}\nEND")
        assert known() == set()
        own.sendto(PPTP, (SERVER, 0))
        assert known() == {SERVER}
        assert known(GRE) == set()
        namespace.shell("nft flush set inet guard called_gre; conntrack -F")
        assert known() == set()
        own.sendto(GRE, (SERVER, 0))
        assert known() == set(), "that was no call"


def test_gre_of_pptp_lines_may_be_fragmented(namespace: Namespace, far: Namespace) -> None:
    namespace.shell(f"nft -f - <<'END'\n{TABLE}\nEND")
    with raw(namespace, OWN) as own, raw(far, SERVER) as there:
        flags: dict[bytes, int] = {}
        there.settimeout(0.5)
        while flags.keys() != {PPTP, GRE}:
            for packet in {PPTP, GRE} - flags.keys():
                own.sendto(packet, (SERVER, 0))
            with suppress(TimeoutError):  # one that was lost is sent again
                received = there.recv(100)
                flags[received[_HEADER:]] = received[6]
    assert flags == {PPTP: 0, GRE: _DONT_FRAGMENT}
