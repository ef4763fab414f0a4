"""Other programs' traffic control beside the fast path of known flows: it sees all, and stays."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest

from egressd.model.messages import RuleCount
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, clear, eventually, limit, send
from tests.support.fast_path import hooked, passed

pytestmark = pytest.mark.lab

SIZE = 2 << 20
"""Bytes of a transfer."""
LEAST_S = 1.2
"""Seconds of a transfer at 8 Mbit/s: 2.1, less the burst that may be sent at once."""
IFB = "sqm"
RATE = ("tbf", "rate", "8mbit", "burst", "32k", "latency", "100ms")
REDIRECT = f"u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev {IFB}"


class Case(NamedTuple):
    """A limit of another program's."""

    interface: str
    is_upload: bool
    """True if it limits uploads, false for downloads."""
    commands: Sequence[str]
    undo: Sequence[str]
    seen: str
    """The command whose output shows the bytes that it saw."""
    told: str
    """Words of the report in `problems`."""


MAKE_IFB = (
    f"ip link add {IFB} type ifb",
    f"ip link set {IFB} up",
    f"tc qdisc add dev {IFB} root {' '.join(RATE)}",
)
SEEN_BY_IFB = f"tc -s qdisc show dev {IFB}"


def at_ingress(interface: str, *commands: str) -> Case:
    """Return a limit of incoming traffic, by an IFB as in SQM."""
    return Case(
        interface,
        interface == "lan0",
        (*MAKE_IFB, *(command.format(interface) for command in commands)),
        (f"tc qdisc del dev {interface} handle ffff: ingress", f"ip link del {IFB}"),
        SEEN_BY_IFB,
        f"tc filter show dev {interface} ingress",
    )


def sqm(interface: str) -> Case:
    """Return the commands of SQM's scripts, in their order."""
    return at_ingress(
        interface,
        "-tc qdisc del dev {} handle ffff: ingress",
        "tc qdisc add dev {} handle ffff: ingress",
        f"tc filter add dev {{}} parent ffff: protocol all prio 10 {REDIRECT}",
    )


def without_priority(interface: str) -> Case:
    """Return a filter whose priority the kernel chooses: behind those that have one."""
    return at_ingress(
        interface,
        "tc qdisc add dev {} ingress",
        f"tc filter add dev {{}} ingress protocol ip {REDIRECT}",
    )


def at_egress(interface: str) -> Case:
    """Return a limit of outgoing traffic, by a filter."""
    return Case(
        interface,
        interface != "lan0",
        (
            *MAKE_IFB,
            f"tc qdisc add dev {interface} clsact",
            f"tc filter add dev {interface} egress protocol ip {REDIRECT}",
        ),
        (f"tc qdisc del dev {interface} clsact", f"ip link del {IFB}"),
        SEEN_BY_IFB,
        f"tc filter show dev {interface} egress",
    )


def by_chain(interface: str, hook: str) -> Case:
    """Return a limit by a chain of nftables that belongs to the device."""
    place = f'{{ type filter hook {hook} device "{interface}" priority 0; }}'
    return Case(
        interface,
        (interface == "lan0") == (hook == "ingress"),
        (
            "nft add table netdev theirs",
            f"nft add chain netdev theirs theirs {place}",
            "nft add rule netdev theirs theirs counter",
            "nft add rule netdev theirs theirs limit rate over 500 kbytes/second drop",
        ),
        ("nft delete table netdev theirs",),
        "nft list chain netdev theirs theirs",
        "nft list chain netdev theirs theirs",
    )


def by_class(interface: str) -> Case:
    """Return a limit of traffic that nftables' rules put into a class."""
    hook = "{ type filter hook forward priority mangle; }"
    return Case(
        interface,
        interface != "lan0",
        (
            f"tc qdisc add dev {interface} root handle 1: htb",
            f"tc class add dev {interface} parent 1: classid 1:10 htb rate 8mbit",
            f"tc class add dev {interface} parent 1: classid 1:20 htb rate 1gbit",
            "nft add table ip theirs",
            f"nft add chain ip theirs theirs {hook}",
            f"nft add rule ip theirs theirs oifname {interface} meta priority set 1:10",
        ),
        (f"tc qdisc del dev {interface} root", "nft delete table ip theirs"),
        f"tc -s class show dev {interface} classid 1:10",
        f"tc class show dev {interface}",
    )


def at_root(interface: str, *kind: str) -> Case:
    """Return a limit of all outgoing traffic."""
    return Case(
        interface,
        interface != "lan0",
        (f"tc qdisc add dev {interface} root handle 1: {' '.join(kind)}",),
        (f"tc qdisc del dev {interface} root",),
        f"tc -s qdisc show dev {interface}",
        "",
    )


def with_one_class(interface: str) -> Case:
    """Return a limit like that of SQM's simplest script."""
    case = at_root(interface, "htb", "default", "10")
    rate = "htb rate 8mbit burst 32k cburst 32k"
    more = f"tc class add dev {interface} parent 1: classid 1:10 {rate}"
    return case._replace(commands=(*case.commands, more))


def with_a_filter(interface: str) -> Case:
    """Return a limit with one class, for packets that a filter selects."""
    case = with_one_class(interface)
    more = f"tc filter add dev {interface} parent 1: protocol ip u32 match u32 0 0 flowid 1:10"
    told = f"tc filter show dev {interface}"
    return case._replace(commands=(*case.commands, more), told=told)


def run(lab: Lab, commands: Sequence[str]) -> None:
    """Run commands in the router. One that begins with a dash may fail."""
    for command in commands:
        lab.router.run(*command.removeprefix("-").split(), check=not command.startswith("-"))


@contextmanager
def theirs(lab: Lab, case: Case) -> Iterator[None]:
    """Run another program's commands for the block, and undo them afterwards."""
    with ExitStack() as undo:
        for command in case.undo:
            undo.callback(run, lab, [f"-{command}"])
        run(lab, case.commands)
        yield


def bytes_seen(lab: Lab, case: Case) -> int:
    """Return the bytes that went through the limit."""
    said = lab.router.run(*case.seen.split()).stdout
    return int(re.findall(r"(?:Sent|bytes) (\d+)", said)[0])


def problems(lab: Lab) -> list[str]:
    """Return the device's reports on other programs' traffic control."""
    told: list[str] = lab.api.ask("GET", "/ops/overview").body["problems"]
    return [one for one in told if "another program's" in one]


def transfer(lab: Lab, *, upload: bool) -> float:
    """Return the seconds that a transfer takes."""
    begun = time.monotonic()
    if upload:
        reply = lab.client(1).http(f"http://{SERVER}/", method="POST", upload=SIZE, timeout=30)
        assert reply.error == ""
    else:
        reply = lab.client(1).http(f"http://{SERVER}/bytes/{SIZE}", timeout=30)
        assert (reply.error, reply.size) == ("", SIZE)
    return time.monotonic() - begun


def is_limited(lab: Lab, case: Case) -> bool:
    """True if all of a transfer went through the limit, and took its time."""
    before = bytes_seen(lab, case)
    seconds = transfer(lab, upload=case.is_upload)
    return bytes_seen(lab, case) - before >= SIZE and seconds > LEAST_S


def goes_it(lab: Lab, *, upload: bool) -> bool:
    """True if a transfer takes the fast path."""
    before = passed(lab, 1)
    transfer(lab, upload=upload)
    after = passed(lab, 1)
    size = after.up_bytes - before.up_bytes if upload else after.down_bytes - before.down_bytes
    return size > SIZE // 2


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture(autouse=True)
def _emptied(lab: Lab) -> Iterator[None]:
    yield
    clear(lab)


UNSEEN = {
    "SQM on the WAN": sqm("wan1"),
    "SQM on the LAN": sqm("lan0"),
    "a filter for what comes in by the WAN": without_priority("wan1"),
    "a filter for what comes in by the LAN": without_priority("lan0"),
    "a filter for what goes out by the WAN": at_egress("wan1"),
    "a filter for what goes out by the LAN": at_egress("lan0"),
    "a chain for what comes in by the WAN": by_chain("wan1", "ingress"),
    "a chain for what goes out by the LAN": by_chain("lan0", "egress"),
    "classes of the WAN": by_class("wan1"),
    "classes of the LAN": by_class("lan0"),
    "a filter of the WAN's queue": with_a_filter("wan1"),
}


@pytest.mark.parametrize("case", UNSEEN.values(), ids=UNSEEN)
def test_foreign_traffic_control_sees_all_packets(lab: Lab, case: Case) -> None:
    send(lab, 1, "DIRECT")
    assert goes_it(lab, upload=case.is_upload)
    assert problems(lab) == []
    with theirs(lab, case):
        eventually(lambda: case.interface not in hooked(lab), seconds_of(case))
        assert is_limited(lab, case)
        (problem,) = problems(lab)
        assert f"traffic by {case.interface} takes more" in problem
        assert case.told in problem
        send(lab, 1, "Interface:wan2")  # other egresses are not affected
        assert goes_it(lab, upload=True) == (case.interface != "lan0")
        send(lab, 1, "DIRECT")
    eventually(lambda: case.interface in hooked(lab), seconds_of(case))
    assert problems(lab) == []
    assert goes_it(lab, upload=case.is_upload)


def seconds_of(case: Case) -> float:
    """Return the seconds until it is noticed: classes are searched for every ten seconds."""
    return 12 if "class" in case.told else 2


SEEN = {
    "a rate on the WAN": at_root("wan1", *RATE),
    "a rate on the LAN": at_root("lan0", *RATE),
    "one class of the WAN": with_one_class("wan1"),
    "one class of the LAN": with_one_class("lan0"),
}


@pytest.mark.parametrize("case", SEEN.values(), ids=SEEN)
def test_a_root_qdisc_applies_to_the_fast_path(lab: Lab, case: Case) -> None:
    send(lab, 1, "DIRECT")
    with theirs(lab, case):
        assert is_limited(lab, case)
        assert goes_it(lab, upload=case.is_upload)
        assert problems(lab) == []


def test_an_existing_sqm_sees_all_packets_and_survives_egressd(namespaces: None) -> None:
    cases = [sqm("wan1"), sqm("lan0")._replace(commands=sqm("lan0").commands[len(MAKE_IFB) :])]
    with Lab(LabSpec(nodes=(), clients=1, wans=1)) as lab, ExitStack() as stack:
        for case in cases:
            stack.enter_context(theirs(lab, case))
        before = [lab.router.run(*case.told.split()).stdout for case in cases]
        assert all("mirred" in shown for shown in before)
        lab.start_egressd()
        send(lab, 1, "DIRECT")
        assert is_limited(lab, cases[0])
        assert is_limited(lab, cases[1])
        assert passed(lab, 1) == RuleCount(0, 0, 0, 0)
        assert len(problems(lab)) == 2
        lab.device.stop()
        lab.router.run(sys.executable, "-m", "egressd.app", "block")
        assert [lab.router.run(*case.told.split()).stdout for case in cases] == before
        assert hooked(lab) == set()


# --- Beside speed limits. ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "told"),
    [(sqm("lan0"), "past clients' upload limits"), (at_egress("lan0"), "with a download limit")],
    ids=["what comes in", "what goes out"],
)
def test_filters_that_conflict_with_limits_are_reported(lab: Lab, case: Case, told: str) -> None:
    send(lab, 1, "DIRECT")
    with theirs(lab, case):
        eventually(lambda: len(problems(lab)) == 1)
        limit(lab, 1, 50_000)
        eventually(lambda: any(told in problem for problem in problems(lab)))
        shown = lab.router.run(*case.told.split()).stdout
        assert "mirred" in shown
        lab.device.stop()
        lab.device.start()
        assert lab.router.run(*case.told.split()).stdout == shown
        assert any(told in problem for problem in problems(lab))
    eventually(lambda: problems(lab) == [])


def test_a_root_qdisc_of_the_lan_applies_beside_a_limit(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    limit(lab, 1, 50_000)
    with theirs(lab, case := at_root("lan0", *RATE)):
        assert is_limited(lab, case)
        assert problems(lab) == []
        limit(lab, 1, 4_000)  # the lower one of both applies
        assert transfer(lab, upload=False) > 2 * LEAST_S
        assert "tbf 1:" in lab.router.run("tc", "qdisc", "show", "dev", "lan0").stdout
