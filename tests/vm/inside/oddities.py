"""Scenarios of servers that do what few others do, each with lines of its own.

``python -m tests.vm.inside.oddities SHARED [SCENARIO...]`` runs all, or those named; `main` runs
the short ones after its own. The servers are the real ones of `network`, made odd by nftables or
their own settings, and the access server of `access_server`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from egressd.model.messages import LineStatus
from egressd.model.nouns import Line
from tests.vm.inside import access_server, clock, netns, network
from tests.vm.inside.access_server import AccessServer
from tests.vm.inside.netns import sh
from tests.vm.inside.network import PASSWORD, SECRET, SERVERS, Account
from tests.vm.inside.ppp_peer import Habits
from tests.vm.inside.probes import EVERY_S, PORT, Client, Web
from tests.vm.inside.suite import (
    BLOCK_S,
    PROCESSES,
    ROUTER,
    RUN_DIR,
    Suite,
    has_state,
    leader,
    leaders,
    users,
)

RETURN_S: Final = 10.0
"""After a server can be had again."""

FREED_S: Final = 20.0
"""After a server has freed an account."""
MISSED_S: Final = 7.5
"""After a server fell silent; half a second of it is the test's own."""
SELDOM_S: Final = 5.0
SELDOM_MISSED_S: Final = 10.0
"""The same for one that ignores echoes, and is sent a packet every `SELDOM_S`."""
CLOSED_S: Final = 16.0
"""After so long pauses that double would be longer than `RETURN_S`."""

GRE: Final = 47
ETH_P_IP: Final = 0x0800
STRANGER: Final = "198.51.101.77"

_UPLOAD: Final = 100_000
UPLOAD_S: Final = 10.0

SECRETS: Final[dict[str, Any]] = {"server": SERVERS["s1"], "secret": SECRET}
ACCOUNT: Final = "office"
OTHERS: Final = ("shop", "store", "home")
ACCOUNTS: Final = users("s1") | {ACCOUNT: "192.168.101.99"}
"""The users of the real server, and their addresses."""

FIRST: Final = 1
FOLLOWING: Final = 40
"""The number of the first line, alone and after the scenarios of `main`: clients have addresses by
their lines' numbers.
"""


class OddSuite(Suite):
    """The router without lines, and the servers."""

    def __init__(self, shared: Path, first: int = FIRST) -> None:
        super().__init__(shared, {})
        self.server = AccessServer({ACCOUNT: PASSWORD, **dict.fromkeys(OTHERS, PASSWORD)})
        self._numbers = itertools.count(first)

    async def dial(self, kind: str = "l2tp", **changes: Any) -> str:
        """Add a line to the odd server, and its client; the line's name."""
        number = next(self._numbers)
        fields = {
            "server": access_server.ADDRESS,
            "port": 1723 if kind == "pptp" else 1701,
            "username": ACCOUNT,
            "password": PASSWORD,
            "interface": "wan1",
        }
        line = Line(id=number, type=kind, name=f"{kind}_{number}", **(fields | changes))
        self.clients[line.name] = client = Client(f"10.77.0.{number + 10}")
        client.start()
        await self.apply(**{line.name: line})
        return line.name

    async def drop(self, *names: str) -> None:
        """Remove lines and their clients."""
        await self.apply(**dict.fromkeys(names))
        for name in names:
            self.clients.pop(name).close()

    async def drop_all(self) -> None:
        """Remove all lines and their clients."""
        await self.apply(**dict.fromkeys(self.lines))
        for client in self.clients.values():
            client.close()
        self.clients.clear()

    async def run(self, scenario: Callable[[Self], Awaitable[None]]) -> None:
        """Run it. What a scenario that failed has left is not there for the next one."""
        await super().run(scenario)
        if self.verdicts[scenario.__name__].problem:
            await self._begin_anew()

    async def _begin_anew(self) -> None:
        for client in self.clients.values():
            client.close()
        self.clients.clear()
        self.lines.clear()
        for tap in self.taps.values():
            tap.forget()
        # Another netd ends what it finds, and knows nothing of what has worked.
        await self.end_router(signal.SIGKILL)
        await self.start_router()
        await self.ask("apply")

    async def is_missed(self, names: Collection[str], within_s: float = MISSED_S) -> None:
        """Cut the path to all servers; soon the lines know."""
        with ruled("isp", "forward", "drop"):
            cut = time.monotonic()
            for name in names:
                status = await self.until(name, lambda status: not status.is_online, BLOCK_S)
                assert status.state in ("lost", "dialing"), status
                self.figures[f"{name} missed"] = missed = time.monotonic() - cut
                assert missed < within_s, f"{name} was missed after {missed:.1f} s"

    async def uploads(self, name: str) -> None:
        """Have the client of a line send at full size by TCP, and get it all back."""
        loop = asyncio.get_running_loop()
        talking = netns.tcp("client")
        talking.bind((self.clients[name].address, 0))
        sent = os.urandom(_UPLOAD)
        try:
            async with asyncio.timeout(UPLOAD_S):
                await loop.sock_connect(talking, (network.WEB, PORT))
                sending = asyncio.create_task(loop.sock_sendall(talking, sent))
                got = bytearray()
                while len(got) < len(sent):
                    got += await loop.sock_recv(talking, 65536)
                await sending
        finally:
            talking.close()
        assert got == sent

    def logs(self, name: str) -> str:
        """Return the logs of the daemons of a line."""
        return "\n".join(f"{log}:\n{self._log(name, log)}" for log in ("log", "ppp.log"))

    async def told(self, name: str, state: str, reason: str, within_s: float) -> None:
        """Wait until a line is down in that state for that reason."""
        began = time.monotonic()
        status = await self.until(name, partial(has_state, state), within_s)
        assert reason in status.reason, f"{status}\n{self.logs(name)}"
        self.figures[f"{name} {state} known"] = time.monotonic() - began
        self._keep(name, status)

    def _keep(self, name: str, status: LineStatus) -> None:
        """Keep the logs of a line that is down, with its state and reason."""
        line = self.lines[name]
        if line.secret:
            return  # charon keeps no log
        ppp, daemon = self._log(name, "ppp.log"), self._log(name, "log")
        said = {"kind": line.type, "server": line.server, "ppp": ppp, "daemon": daemon}
        folder = self.shared / "said"
        folder.mkdir(exist_ok=True)
        path = folder / f"{len(list(folder.iterdir())):02}.json"
        told = {"state": status.state, "reason": str(status.reason)}
        path.write_bytes(msgspec.json.encode({**said, **told}))

    def _log(self, name: str, log: str) -> str:
        with suppress(FileNotFoundError):
            return (RUN_DIR / "units" / name / log).read_text(errors="replace")
        return ""

    async def fails(
        self, kind: str, state: str, reason: str, within_s: float = BLOCK_S, **changes: Any
    ) -> None:
        """Dial a line that does not come up, and check the reason."""
        name = await self.dial(kind, **changes)
        try:
            await self.told(name, state, reason, within_s)
        finally:
            await self.drop(name)
            self.server.reset()


_tables = itertools.count()
_COUNTED: Final = re.compile(r"counter packets (\d+)")


@contextmanager
def ruled(namespace: str, hook: str, *rules: str) -> Iterator[Callable[[], list[int]]]:
    """Have rules of nftables in a namespace. What is yielded returns the packets that each of them
    has counted which says ``counter``.
    """
    table = f"odd{next(_tables)}"
    added = "; ".join(f"add rule ip {table} {hook} {rule}" for rule in rules)
    sh(
        f"ip netns exec {namespace} nft 'add table ip {table}; add chain ip {table} {hook} "
        f"{{ type filter hook {hook} priority -10; }}; {added}'"
    )

    def counted() -> list[int]:
        listed = sh(f"ip netns exec {namespace} nft list table ip {table}")
        return [int(packets) for packets in _COUNTED.findall(listed)]

    try:
        yield counted
    finally:
        sh(f"ip netns exec {namespace} nft delete table ip {table}")


@contextmanager
def optioned(server: str, file: str, changes: Mapping[str, str]) -> Iterator[None]:
    """Have a server's pppd read other options in place of some."""
    path = network.RUN / server / file
    before = path.read_text()
    path.write_text(reduce(lambda text, change: text.replace(*change), changes.items(), before))
    try:
        yield
    finally:
        path.write_text(before)


# --- Reasons. -------------------------------------------------------------------------------


async def an_odd_server_serves_a_line(suite: OddSuite) -> None:
    """The positive control: what is no oddity goes well, by CHAP and by PAP."""
    for proof in ("chap", "pap"):
        suite.server.habits = Habits(proof=proof)
        name = await suite.dial()
        await suite.online([name])
        await suite.drop(name)


async def a_pptp_port_is_closed(suite: OddSuite) -> None:
    """The machine is up and its port closed: the line is back soon after the port is open."""
    server = SERVERS["s1"]
    name = await suite.dial("pptp", server=server)
    await suite.online([name])
    for said, words in (
        ("with tcp reset", "Connection refused"),
        ("with icmp type host-unreachable", "No route to host"),
    ):
        with ruled("s1", "input", f"tcp dport 1723 reject {said}"):
            os.kill(leader(name), signal.SIGKILL)
            await suite.told(name, "unreachable", f"answers at {server}: {words}", BLOCK_S)
            closed = time.monotonic()
            while time.monotonic() - closed < CLOSED_S:
                status = (await suite.statuses())[name]
                assert status.state in ("unreachable", "dialing"), status
                await asyncio.sleep(0.5)
        opened = time.monotonic()
        await suite.online([name])
        suite.figures[f"back after {words}"] = back = time.monotonic() - opened
        assert back < RETURN_S
    await suite.drop(name)


async def eap_is_insisted_on(suite: OddSuite) -> None:
    """By a server of L2TP, which begins for ever anew, and by one of PPTP."""
    suite.server.habits = Habits(proof="eap")
    await suite.fails("l2tp", "refused", "the server insists on EAP")
    for wanted, reason in (
        ("require-eap", "the server insists on EAP"),
        ("require-chap", "the server does not ask for MS-CHAPv2"),
    ):
        with optioned("s1", "options.pptp", {"require-mppe-128": "", "require-mschap-v2": wanted}):
            await suite.fails("pptp", "refused", reason, server=SERVERS["s1"])


async def both_ends_have_one_address(suite: OddSuite) -> None:
    """The kernel makes no such line, which would never be online."""
    suite.server.habits = Habits(own_address=f"{access_server.POOL}.10")
    reason = f"both ends of the line one address, {access_server.POOL}.10"
    await suite.fails("l2tp", "refused", reason)


async def a_tunnel_has_a_secret(suite: OddSuite) -> None:
    """The secret is L2TP's own, which lines do not have."""
    suite.server.habits = Habits(tunnel_secret=True)
    await suite.fails("l2tp", "refused", "a secret of L2TP's own")


async def calls_are_refused(suite: OddSuite) -> None:
    """By a server's own words, or else by those of the standard for its code."""
    for refusal, words in (
        ((2, 4, b"Not on Sundays"), "closed the connection: Not on Sundays"),
        ((4, 0, b""), "the server has no room for the call at the moment"),
        ((3, 0, b""), "the server closed the connection for administrative reasons"),
    ):
        suite.server.habits = Habits(call_refusal=refusal)
        await suite.fails("l2tp", "refused", words)
    # Its pppd has no such secret, and ends before it says anything.
    with optioned("s1", "options.pptp", {"require-mschap-v2": "require-pap"}):
        reason = "the PPTP server ended the call"
        await suite.fails("pptp", "refused", reason, server=SERVERS["s1"])


async def reasons_are_told(suite: OddSuite) -> None:
    """Reasons that follow from a code, from the daemons or from silence."""
    for code, words in (
        (3, "the server has a tunnel of this line already"),
        (4, "the server does not let this line have a tunnel"),
        (5, "the server speaks another version of L2TP"),
        (6, "the server is being shut down"),
    ):
        suite.server.habits = Habits(tunnel_refusal=(code, 0, b""))
        await suite.fails("l2tp", "refused", words)
    for code, words in (
        (5, "the server has no room for the call"),
        (10, "the call was not set up in the time that the server gives"),
    ):
        suite.server.habits = Habits(call_refusal=(code, 0, b""))
        await suite.fails("l2tp", "refused", words)
    suite.server.habits = Habits(reflects=True)
    await suite.fails("l2tp", "refused", "what is sent to the server comes back unchanged")
    for proof in ("chap", "pap"):
        suite.server.habits = Habits(proof=proof)
        await suite.fails("l2tp", "wrong_password", "Access denied", password="wrong")
    s1 = SERVERS["s1"]
    await suite.fails(
        "pptp", "wrong_password", "refused the user name", server=s1, password="wrong"
    )
    with optioned("s1", "options.pptp", {"require-mppe-128": "require-mppe-40"}):
        reason = "the server does not encrypt PPTP with 128 bits (MPPE)"
        await suite.fails("pptp", "refused", reason, server=s1)
    with ruled(access_server.NAME, "input", "udp dport 1701 reject"):
        await suite.fails("l2tp", "unreachable", "no L2TP server answers at")
    with ruled(access_server.NAME, "input", "udp dport 1701 drop"):
        await suite.fails("l2tp", "unreachable", "no L2TP server answers at")
    with ruled("s1", "input", "tcp dport 1723 drop"):
        await suite.fails("pptp", "unreachable", "no PPTP server answers at", server=s1)
    with ruled("s1", "input", "udp dport 500 drop"):
        await suite.fails("l2tp", "unreachable", "no IPsec server answers at", **SECRETS)


async def mppe_is_required_in_l2tp(suite: OddSuite) -> None:
    """It is not PPTP that the server does not encrypt."""
    with optioned("s1", "options.l2tp", {"noccp": "require-mppe-128"}):
        reason = "the server wants MPPE inside L2TP"
        await suite.fails("l2tp", "refused", reason, server=SERVERS["s1"])


async def only_control_comes_through(suite: OddSuite) -> None:
    """GRE is dropped on the way, or L2TP's data by the server."""
    with ruled("isp", "forward", "ip protocol gre drop"):
        reason = "drops IP protocol 47"
        await suite.fails("pptp", "unreachable", reason, 30, server=SERVERS["s1"])
    with ruled(access_server.NAME, "input", "udp dport 1701 @th,64,1 0 drop"):
        await suite.fails("l2tp", "unreachable", "no PPP comes from it", 30)


async def an_account_is_still_in_use(suite: OddSuite) -> None:
    """The server holds the session that a cut path left behind, and lets in no second one."""
    for habits in (
        Habits(hold_s=30),
        Habits(hold_s=30, proof="pap"),
        Habits(hold_s=30, ends_when_in_use=True),
    ):
        suite.server.habits = habits
        name = await suite.dial()
        await suite.online([name])
        cut = time.monotonic()
        with ruled("isp", "forward", f"ip daddr {access_server.ADDRESS} drop"):
            await suite.until(name, lambda status: not status.is_online, BLOCK_S)
            suite.figures[f"{name} known down"] = time.monotonic() - cut
        reason = "the account may still be in use at the server: You are already logged in"
        await suite.told(name, "refused", reason, BLOCK_S)
        await suite.online([name])
        suite.figures[f"{name} back"] = back = time.monotonic() - cut - 30
        assert back < FREED_S, f"{name} was back {back:.1f} s after the account was free"
        await suite.drop(name)
        suite.server.reset()


# --- Signs of life. -------------------------------------------------------------------------

ASKED_S: Final = 30.0
"""Longer than three times what a silent server is given."""
ECHOES_OF_PPTP: Final = tuple(
    # LCP echo requests behind 12 or 16 bytes of GRE (RFC 2637, 4.1), and PPP's address and control
    # (RFC 1662, 3.1) or nothing, become discard requests (RFC 1661, 5.9), which have no answer. A
    # gap in GRE's sequence numbers would delay what follows, so that CCP would fail.
    f"ip protocol gre @th,{bits},24 0xc02109 counter @th,{bits + 16},8 set 0x0b"
    for bits in (96, 112, 128, 144)
)


async def echoes_are_ignored(suite: OddSuite) -> None:
    """Lines stay up by all that comes else, and without anything; a silent server is missed."""
    suite.server.habits = Habits(answers_echoes=False)
    odd = await suite.dial()
    with ruled("s1", "input", *ECHOES_OF_PPTP) as dropped:
        pptp = await suite.dial("pptp", server=SERVERS["s1"])
        lines = (odd, pptp)
        await suite.online(lines)
        for every in (EVERY_S, SELDOM_S, 12.0, 1e6):
            before = leaders(lines)
            for name in lines:
                suite.clients[name].pace(every)
            since = time.monotonic()
            await asyncio.sleep(ASKED_S)
            assert leaders(lines) == before, f"a line was dialled anew: every {every} s"
            for name in lines:
                answers = [asked for asked, _, _ in suite.clients[name].answers if asked > since]
                # The first question is asked when the pace is set.
                assert len(answers) >= max(int(ASKED_S / every) - 1, 1), f"{name}, every {every} s"
        assert suite.server.peers[-1].echoes
        assert sum(dropped()), "no echo of the PPTP line was ignored"
        for name in lines:
            suite.clients[name].pace(SELDOM_S)
        await suite.online(lines)
    await suite.is_missed(lines, SELDOM_MISSED_S)
    await suite.drop(*lines)


async def a_server_falls_silent(suite: OddSuite) -> None:
    """An idle line to a server that answers echoes ends soon, of either kind."""
    lines = (await suite.dial(), await suite.dial("pptp", server=SERVERS["s1"]))
    await suite.online(lines)
    for name in lines:
        suite.clients[name].pace(1e6)
    await asyncio.sleep(ASKED_S)
    await suite.is_missed(lines)
    await suite.drop(*lines)


# --- Ways. ----------------------------------------------------------------------------------


async def a_line_carries_a_pptp_line(suite: OddSuite) -> None:
    """The server's GRE comes by the carrier; that of anybody else there does not."""
    carrier = await suite.dial(server=SERVERS["s1"])
    await suite.online([carrier])
    name = await suite.dial("pptp", server=SERVERS["s1"], interface=carrier, username="pptp_a")
    await suite.online([name])
    assert suite.clients[name].seen_since(time.monotonic() - 1) == {users("s1")["pptp_a"]}
    address = (await suite.statuses())[carrier].ip
    sh(f"ip -n s1 address add {STRANGER}/32 dev lo")
    stranger = netns.inside("s1", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, GRE))
    with (
        stranger,
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, ETH_P_IP) as came,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, GRE) as let_in,
    ):
        came.bind((carrier, ETH_P_IP))
        for each in (came, let_in):
            each.setblocking(False)
        stranger.bind((STRANGER, 0))
        stranger.sendto(struct.pack("!HHHH", 0x3001, 0x880B, 0, 1), (address, 0))
        await suite.clients[name].answered(5)
        assert set(_senders(came)) >= {SERVERS["s1"], STRANGER}
        assert set(_senders(let_in)) == {SERVERS["s1"]}
    await suite.drop(name, carrier)


def _senders(opened: socket.socket) -> Iterator[str]:
    """Yield the senders of the packets, with their IPv4 headers, that have come to a socket."""
    with suppress(BlockingIOError):
        while True:
            yield socket.inet_ntoa(opened.recv(4096)[12:16])


async def a_path_is_short(suite: OddSuite) -> None:
    """Uploads that fill a PPTP line go through, whether the path says that it is short or not."""
    name = await suite.dial("pptp", server=SERVERS["s1"])
    await suite.online([name])
    before = leaders([name])
    # By a route: a device would not take longer packets from the server either.
    sh(f"ip -n isp route add {SERVERS['s1']}/32 dev to-s1 mtu 1400")
    try:
        await _is_split(suite, name)
        with ruled("isp", "output", "icmp type destination-unreachable drop"):
            await _is_split(suite, name)
    finally:
        sh(f"ip -n isp route del {SERVERS['s1']}/32")
    assert leaders([name]) == before, "the line was dialled anew"
    await suite.drop(name)


async def _is_split(suite: OddSuite, name: str) -> None:
    """Upload by a line whose packets do not fit the path: the router or the ISP splits them."""
    before = _fragments()
    await suite.uploads(name)
    assert _fragments() - before > _UPLOAD // 1400


def _fragments() -> int:
    """Return the number of fragments that the router and the ISP have made (RFC 4293)."""
    found = 0
    for run in ("", "ip netns exec isp "):
        names, values = sh(f"{run}grep ^Ip: /proc/net/snmp").splitlines()
        found += int(dict(zip(names.split(), values.split(), strict=True))["FragCreates"])
    return found


# --- IPsec. ---------------------------------------------------------------------------------

ESP_DROPPED_S: Final = 15.0
"""Until a line is online where ESP is dropped: an association, 7 s in which L2TP gets no answer, a
second's pause, and an association with ESP in UDP."""

RENEWED_S: Final = 12
OURS: Final = f"unix://{RUN_DIR}/charon/vici"
_IN_USE: Final = re.compile(
    r"name=(line-\d+) uniqueid=\d+ reqid=\d+ state=INSTALLED [^{}]*?spi-in=(\w+)"
)

_INFORMATIONAL: Final = "udp sport 500 @th,208,8 5 drop"
"""IKE's notifies, by the exchange type (RFC 2408, 3.1)."""


async def esp_is_dropped(suite: OddSuite) -> None:
    """It goes in UDP then, and goes on so after an outage; the line says so."""
    with ruled("isp", "forward", "ip protocol esp drop"):
        before = suite.taps["wan1"].encapsulated
        began = time.monotonic()
        name = await suite.dial(**SECRETS)
        await suite.told(name, "unreachable", "may drop ESP (IP protocol 50)", BLOCK_S)
        await suite.online([name])
        suite.figures["online"] = took = time.monotonic() - began
        assert took < ESP_DROPPED_S
        told = (await suite.statuses())[name].encryption
        assert "ESP in UDP (by itself it does not come through)" in told
        assert suite.taps["wan1"].encapsulated > before
        await suite.is_missed([name])
        back = time.monotonic()
        await suite.online([name])
        suite.figures["back after an outage"] = took = time.monotonic() - back
        assert took < RETURN_S
    await suite.drop(name)
    # What worked last is kept.
    name = await suite.dial(**SECRETS)
    await suite.online([name])
    assert "in UDP" in (await suite.statuses())[name].encryption
    await suite.drop(name)


async def one_proposal_is_taken(suite: OddSuite) -> None:
    """Servers that take one IKE and one ESP proposal get it, and its weak parts are named."""
    try:
        for ike, esp, told in (
            ("3des-md5-modp1024", "3des-md5", "weak: 3DES_CBC, HMAC_MD5_96, MODP_1024"),
            ("aes256-sha256-ecp256", "aes128gcm16", "AES_GCM_16_128"),
            ("aes256-sha256-modp1024", "aes192-sha1", "weak: MODP_1024"),
            ("aes256-sha1-modp1536", "aes256-sha1-modp1024", "weak: MODP_1536, MODP_1024"),
            ("aes192-sha1-modp1024", "aes256-sha512", "AES_CBC_192"),
            ("aes128-sha512-modp3072", "aes256-sha256-ecp256", "MODP_3072"),
        ):
            network.take("s1", ike, esp)
            began = time.monotonic()
            name = await suite.dial(**SECRETS)
            await suite.online([name])
            suite.figures[f"{ike}, {esp}"] = time.monotonic() - began
            encryption = (await suite.statuses())[name].encryption
            assert told in encryption, encryption
            await suite.drop(name)
        network.take("s1", "aes256-sha512-modp3072")
        with ruled("s1", "output", _INFORMATIONAL):
            began = time.monotonic()
            # By a way on which nothing has worked.
            name = await suite.dial(**SECRETS, interface="wan2")
            await suite.online([name])
            suite.figures["online, silent about offers"] = time.monotonic() - began
            await suite.drop(name)
        network.take("s1", "camellia256-sha512-modp8192")
        await suite.fails("l2tp", "refused", "none of the IPsec encryptions offered", **SECRETS)
    finally:
        network.take("s1")


async def a_server_renews_first(suite: OddSuite) -> None:
    """Three lines on one IKE association, whose children the server is the first to renew."""
    network.take("s1", renewed_s=RENEWED_S)
    try:
        names = [
            await suite.dial(**SECRETS, username=user) for user in ("l2tp_a", "l2tp_c", ACCOUNT)
        ]
        await suite.online(names)
        before, keys = leaders(names), _keys()
        assert len(keys) == len(names)
        others = suite.bystanders()
        await asyncio.sleep(3 * RENEWED_S)
        assert leaders(names) == before, "a line was dialled anew"
        renewed = _keys()
        for name, spis in keys.items():
            assert renewed[name] - spis, f"the server has not renewed {name}"
        suite.figures["longest silence"] = others.check()
    finally:
        network.take("s1")
    await suite.drop(*names)


def _keys() -> dict[str, set[str]]:
    """The numbers (SPI) of the associations in use, by charon's names of them. Those that were
    renewed stay until they expire, in another state.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, spi in _IN_USE.findall(sh(f"swanctl --list-sas --raw --uri {OURS}")):
        found[name].add(spi)
    return found


# --- What no server has reason to do. -------------------------------------------------------

ESCAPES: Final = b"\x1b]0;owned\x07\x1b[2J\r\n\0\xff\xe2\x80\xae"
"""A terminal's title, and its screen cleared; a line's end, and what is no character."""
LOOPED_S: Final = 60.0
LOOPS_MAX: Final = 20
"""Sessions in that time: at most one after 0.2 s, and then one every 2 to 6 s."""
STALLED_S: Final = 60.0
LOG_MAX: Final = 3 << 20
"""Bytes of a log that may be there before it is emptied."""


async def words_are_bad(suite: OddSuite) -> None:
    """Control characters, escapes and 64 KB become a few printable characters."""
    words = ESCAPES + b"x" * 60_000
    for habits, reason in (
        (Habits(farewell=words[:1400], ends_at_once=True), "the server ended the line: "),
        (Habits(call_refusal=(2, 6, ESCAPES + b"y" * 900)), "closed the connection:"),
        (Habits(refusal=words[:1400]), "user name or password: "),
        (Habits(refusal=words[:250], proof="pap"), "user name or password: "),
    ):
        suite.server.habits = habits
        name = await suite.dial()
        status = await suite.until(name, lambda status: status.reason.find(": ") > 0, BLOCK_S)
        assert reason in status.reason, status
        assert status.reason.isascii(), status
        assert status.reason.isprintable(), status
        assert len(status.reason) < 200, status
        await suite.drop(name)
        suite.server.reset()
    # What is longer than a frame may be is dropped.
    name = await suite.dial()
    await suite.online([name])
    before = leaders([name])
    suite.server.peers[-1].end(words)
    await suite.clients[name].answered(5)
    assert leaders([name]) == before
    await suite.drop(name)
    events = (await suite.ask("status"))["events"]
    assert all(text.isprintable() and len(text) < 300 for text in events), events


async def a_server_never_finishes(suite: OddSuite) -> None:
    """It answers for ever: the line is given up, and others notice nothing."""
    good = await suite.dial(server=SERVERS["s1"])
    await suite.online([good])
    others = suite.bystanders()
    stalled = []
    for stalls, reason in (
        ("tunnel", "took too long to set the line up"),
        ("call", "the L2TP server does not answer the call"),
        ("lcp", "took too long to set the line up"),
        ("login", "the server does not answer the login"),
        ("ipcp", "the server gave no IP address"),
    ):
        suite.server.habits = Habits(stalls=stalls)
        before = suite.server.tunnels
        stalled.append((await suite.dial(), stalls, reason))
        async with asyncio.timeout(BLOCK_S):
            while suite.server.tunnels == before:  # noqa: ASYNC110 (it sets no event)
                await asyncio.sleep(0.1)
    await asyncio.gather(*(_is_given_up(suite, *each) for each in stalled))
    suite.figures["longest silence of others"] = others.check()
    await suite.drop(good, *(name for name, _, _ in stalled))


async def _is_given_up(suite: OddSuite, name: str, stalls: str, reason: str) -> None:
    began = time.monotonic()
    status = await suite.until(
        name, lambda status: status.state not in ("dialing", "waiting"), STALLED_S
    )
    suite.figures[f"{stalls}: given up after"] = time.monotonic() - began
    assert reason in status.reason, f"{stalls}: {status}"
    logs = [RUN_DIR / "units" / name / log for log in ("log", "ppp.log")]
    assert max(log.stat().st_size for log in logs if log.exists()) < LOG_MAX


async def a_server_ends_what_has_just_begun(suite: OddSuite) -> None:
    """A session is over as soon as it is there: the line is not dialled in a tight loop."""
    good, name = await suite.dial(server=SERVERS["s1"]), await suite.dial()
    await suite.online([good, name])
    others = suite.bystanders(name)
    suite.server.habits = Habits(farewell=b"Enough", ends_at_once=True)
    before = suite.server.calls
    suite.server.peers[-1].end()
    await asyncio.sleep(LOOPED_S)
    suite.figures["sessions in a minute"] = calls = suite.server.calls - before
    assert 5 < calls < LOOPS_MAX
    reason = "the server ended the line: Enough"
    status = await suite.until(name, lambda status: reason in status.reason, BLOCK_S)
    assert status.state in ("lost", "refused"), status
    suite.figures["longest silence of others"] = others.check()
    suite.server.reset()
    ended = time.monotonic()
    await suite.online([name])
    suite.figures["back after"] = back = time.monotonic() - ended
    assert back < RETURN_S
    await suite.drop(name, good)


Scenario = Callable[[OddSuite], Awaitable[None]]
SHORT: Final[tuple[Scenario, ...]] = (
    an_odd_server_serves_a_line,
    both_ends_have_one_address,
    a_tunnel_has_a_secret,
    calls_are_refused,
    mppe_is_required_in_l2tp,
    a_line_carries_a_pptp_line,
    a_path_is_short,
)
LONG: Final[tuple[Scenario, ...]] = (
    a_pptp_port_is_closed,
    eap_is_insisted_on,
    reasons_are_told,
    only_control_comes_through,
    an_account_is_still_in_use,
    echoes_are_ignored,
    a_server_falls_silent,
    esp_is_dropped,
    one_proposal_is_taken,
    a_server_renews_first,
    words_are_bad,
    a_server_never_finishes,
    a_server_ends_what_has_just_begun,
)
"""Scenarios that run only on request: they take minutes, most of all where the machine is
emulated."""
SCENARIOS: Final = (*SHORT, *LONG)


async def opened(shared: Path, accounts: Mapping[str, Mapping[str, str]]) -> OddSuite:
    """Build the network and start the router, the odd server, and those of `accounts`: for each
    the address of each of its users.
    """
    PROCESSES.set_forkserver_preload(["tests.vm.inside.router"])
    network.build()
    suite = OddSuite(shared)
    for tap in suite.taps.values():
        tap.start()
    suite.server.build()
    suite.server.start()
    await asyncio.gather(
        suite.start_router(),
        *(asyncio.to_thread(network.start_server, *each) for each in accounts.items()),
    )
    await Web().open()
    return suite


async def follow(earlier: Suite, scenarios: Collection[Scenario]) -> None:
    """Run scenarios in the network of another suite whose lines have ended, with a new router."""
    if earlier.router.is_alive():
        await earlier.end_router(signal.SIGKILL)
    for client in earlier.clients.values():
        client.close()
    sh(f"rm -r {ROUTER}")
    accounts = [Account(user, PASSWORD, address) for user, address in ACCOUNTS.items()]
    await asyncio.to_thread(network.let_in, "s1", accounts, SECRET)
    suite = OddSuite(earlier.shared, FOLLOWING)
    suite.taps, suite.verdicts = earlier.taps, earlier.verdicts
    for tap in suite.taps.values():
        tap.forget()
    suite.server.build()
    suite.server.start()
    await suite.start_router()
    await _run(suite, scenarios)


async def _run(suite: OddSuite, scenarios: Collection[Scenario]) -> None:
    for scenario in scenarios:
        await suite.run(scenario)
        suite.server.reset()


async def main(shared: Path, chosen: Collection[str]) -> None:
    with clock.steady():
        suite = await opened(shared, {"s1": ACCOUNTS})
    wanted = [each for each in SCENARIOS if not chosen or each.__name__ in chosen]
    await _run(suite, wanted)
    (shared / "done").touch()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
