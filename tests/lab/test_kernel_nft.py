"""libnftables against the kernel."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
import time
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from egressd.model.device import InterfaceRoles
from egressd.model.errors import Failed
from egressd.model.plan import Egress, GlobalPolicy, Plan, WhitelistPlan
from egressd.netd.dataplane.kernel_state import KernelState
from egressd.netd.kernel.nft import Nft, as_listed
from egressd.netd.kernel.set_elements import SWAPPED_MAX
from egressd.planner import nft as script
from egressd.planner.chains import RETIRED_MAPS
from egressd.planner.registry import MARK_DIRECT, egress_mark, node_mark
from egressd.planner.topology import Topology
from tests.support.netns import Namespace
from tests.support.nodes.instances import node_instance

pytestmark = pytest.mark.lab

TABLE = """
add table inet egressd
add map inet egressd hosts { type ipv4_addr : mark; }
add chain inet egressd filter { type filter hook forward priority filter; policy accept; }
"""
ONE_LAN = Topology(lans=("lan0",), lan_networks=(("lan0", IPv4Network("10.77.0.0/24")),))


def test_a_transaction_that_fails_changes_nothing(namespace: Namespace) -> None:
    def body() -> None:
        nft = Nft()
        nft.run(TABLE + "add element inet egressd hosts { 192.0.2.1 : 0x10000001 }\n")
        before = nft.chains(), nft.elements("hosts")
        with pytest.raises(Failed):
            nft.run(
                "flush map inet egressd hosts\n"
                "add element inet egressd hosts { 192.0.2.9 : 0x10000009 }\n"
                "add rule inet egressd filter drop\n"
                "add rule inet egressd nowhere drop\n"
            )
        assert (nft.chains(), nft.elements("hosts")) == before
        assert before[1] == {"192.0.2.1": "0x10000001"}

    namespace.run(body)


def test_the_chains_are_those_of_the_own_table(namespace: Namespace) -> None:
    def body() -> None:
        nft = Nft()
        assert nft.chains() is None
        for other in ("egresse", "egressd_hold"):
            nft.run(TABLE.replace("inet egressd", f"inet {other}"))
        assert nft.chains() is None
        nft.run(
            TABLE
            + "add rule inet egressd filter tcp dport { 22, 80 } drop\n"
            + "add element inet egressd hosts { 192.0.2.1 : 0x10000001 }\n"
        )
        nft.run(TABLE.replace("inet egressd", "inet later"))
        listed = subprocess.run(
            ["nft", "--terse", "--stateless", "-y", "list", "table", "inet", "egressd"],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        assert nft.chains() == listed
        assert "{ 22, 80 }" in listed
        assert "192.0.2.1" not in listed

    namespace.run(body)


def test_the_own_table_is_listed_if_others_cannot_be(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body() -> None:
        nft = Nft()
        nft.run(TABLE)
        before = nft.chains()
        run = nft._looking.run
        monkeypatch.setattr(
            nft._looking,
            "run",
            lambda command, flags: (
                ("Error: Invalid argument", "")
                if "ruleset" in command
                else run(command, flags=flags)
            ),
        )
        with pytest.raises(Failed):
            nft.listed("ruleset")
        assert before
        assert nft.chains() == before

    namespace.run(body)


class _Mallinfo2(ctypes.Structure):
    """struct mallinfo2 of the C library (mallinfo(3))."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")
    ] + [(name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")]


def allocated() -> int:
    """Return the bytes that the C library has handed out to this process."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _Mallinfo2
    found = library.mallinfo2()
    return int(found.uordblks) + int(found.hblkhd)


def test_no_context_keeps_what_it_has_listed(namespace: Namespace) -> None:
    def body() -> None:
        nft = Nft()
        hosts = ", ".join(f"10.0.{n // 250}.{n % 250} : {n}" for n in range(10_000))
        nft.run(TABLE + f"add element inet egressd hosts {{ {hosts} }}\n")
        before = allocated()
        assert len(nft.elements("hosts") or ()) == 10_000
        assert allocated() - before < 2_000_000  # the listing takes 8 MB

    namespace.run(body)


def test_a_script_after_closing_fails(namespace: Namespace) -> None:
    def body() -> None:
        nft = Nft()
        nft.close()
        nft.close()
        with pytest.raises(Failed, match="no longer in use"):
            nft.run(TABLE)
        with pytest.raises(Failed, match="no longer in use"):
            nft.chains()

    namespace.run(body)


def test_hosts_are_moved_without_the_library(namespace: Namespace) -> None:
    def body() -> None:
        nft = Nft()
        nft.run(TABLE)
        nft.move_hosts((), {"192.0.2.1": 0x3000_0001, "192.0.2.2": 0x1000_0002})
        nft.move_hosts(["192.0.2.1"], {"192.0.2.1": 0x1000_0003, "192.0.2.9": 0x7FFF_FFFF})
        nft.move_hosts(["192.0.2.2"], {})
        nft.move_hosts((), {})
        assert nft.elements("hosts") == {"192.0.2.1": "0x10000003", "192.0.2.9": "0x7fffffff"}

    namespace.run(body)


@pytest.mark.parametrize(
    ("stale", "fresh"),
    [
        (["192.0.2.1", "192.0.2.7"], {"192.0.2.1": 1}),  # the second one does not exist
        (["192.0.2.2"], {"192.0.2.1": 0x1000_0003}),  # the first one has another mark
        (["192.0.2.1"] * 2, {"192.0.2.9": 1}),
    ],
)
def test_a_failed_move_of_hosts_changes_nothing(
    namespace: Namespace, stale: list[str], fresh: dict[str, int]
) -> None:
    def body() -> None:
        nft = Nft()
        nft.run(TABLE)
        nft.move_hosts((), {"192.0.2.1": 0x3000_0001, "192.0.2.2": 0x1000_0002})
        with pytest.raises(Failed, match="change nftables"):
            nft.move_hosts(stale, fresh)
        assert nft.elements("hosts") == {"192.0.2.1": "0x30000001", "192.0.2.2": "0x10000002"}
        nft.move_hosts(["192.0.2.1"], {"192.0.2.1": 0x3000_0002})  # the socket is still in sync
        assert nft.elements("hosts") == {"192.0.2.1": "0x30000002", "192.0.2.2": "0x10000002"}
        nft.run("delete table inet egressd\n")
        with pytest.raises(Failed, match="change nftables"):
            nft.move_hosts(stale, fresh)

    namespace.run(body)


def test_hosts_that_fill_a_message_are_moved_at_once(namespace: Namespace) -> None:
    def body() -> None:
        nft = Nft()
        nft.run(TABLE)
        hosts = {f"192.0.2.{number}": number for number in range(SWAPPED_MAX)}
        nft.move_hosts((), hosts)
        nft.move_hosts(list(hosts), {address: mark + 1 for address, mark in hosts.items()})
        found = {address: int(mark, 16) for address, mark in (nft.elements("hosts") or {}).items()}
        assert found == {address: mark + 1 for address, mark in hosts.items()}

    namespace.run(body)


def test_a_load_deletes_base_chains_of_earlier_versions(namespace: Namespace) -> None:
    def body() -> None:
        nft = Nft()
        nft.run(
            TABLE
            + "add chain inet egressd input_lines { type filter hook input priority filter; }\n"
            + "add rule inet egressd input_lines drop\n"
        )
        for _ in range(2):
            nft.run(script.load(script.elements(Plan(), ONE_LAN, {})))
            assert "input_lines" not in (nft.chains() or "")

    namespace.run(body)


def test_a_load_replaces_the_map_of_version_0_1_in_place(namespace: Namespace) -> None:
    """Deleting the whole table would let packets through for a moment, and lose its counters."""

    def body() -> None:
        nft = Nft()
        nft.run(
            TABLE
            + f"add map inet egressd relays {{ {RETIRED_MAPS['relays']}; }}\n"
            + "add chain inet egressd input { type filter hook input priority filter; }\n"
            + "add rule inet egressd input meta mark set udp dport map @relays\n"
            + "add element inet egressd relays { 1080 : 0x5 }\n"
            + "add set inet egressd sent { type ipv4_addr; counter; }\n"
            + "add element inet egressd sent { 10.77.0.5 }\n"
        )
        nft.run(script.load(script.elements(Plan(), ONE_LAN, {})))
        assert nft.elements("relays") is None
        assert nft.elements("relay_ports") == {}
        assert [*(nft.elements("sent") or ())] == ["10.77.0.5 counter"]

    namespace.run(body)


@pytest.mark.usefixtures("inside")
async def test_a_table_with_other_set_types_is_replaced_at_once() -> None:
    nft = Nft()
    nft.run(TABLE + "add set inet egressd pairs { type mark . ifname; }\n")
    before = nft.chains()
    machine = KernelState(nft, InterfaceRoles(), engine_uid=990)
    machine.topology = ONE_LAN
    with pytest.raises(Failed):
        nft.run(script.load(script.elements(Plan(), ONE_LAN, {})))
    assert nft.chains() == before
    await machine.load(Plan(hosts={"10.77.0.5": MARK_DIRECT}), {})
    assert nft.elements("hosts") == {"10.77.0.5": hex(MARK_DIRECT)}
    assert await machine.is_intact()


def test_the_reason_of_an_error_is_short(namespace: Namespace) -> None:
    def body() -> list[str]:
        nft = Nft()
        nft.run(TABLE + "add element inet egressd hosts { 192.0.2.1 : 1 }\n")
        many = ", ".join(f"10.0.{i >> 8}.{i & 255} : 7" for i in range(10_000))
        reasons = []
        for text in (
            "add element inet egressd hosts { 192.0.2.1 : 2 }",
            f"add element inet egressd hosts {{ {many}, 192.0.2.1 : 2 }}",
            f"add element inet egressd hosts {{ {many}, oops }}",
            f"add element inet egressd hosts {{ {many}",
            "add rule inet egressd filter " + "bogus " * 1000,
        ):
            with pytest.raises(Failed) as caught:
                nft.run(text)
            assert caught.value.action == "change nftables"
            reasons.append(caught.value.cause)
        return reasons

    reasons = namespace.run(body)
    assert reasons[0] == "Could not process rule: File exists (192.0.2.1)"
    assert all(0 < len(reason) < 1000 for reason in reasons), reasons


def test_a_check_changes_nothing(namespace: Namespace) -> None:
    def body() -> None:
        nft = Nft()
        nft.check(TABLE)
        assert nft.chains() is None
        with pytest.raises(Failed, match="syntax error"):
            nft.check("add table inet {")
        nft.run(TABLE)
        assert nft.chains() is not None

    namespace.run(body)


def test_sets_are_read_back_as_written_by_the_planner(namespace: Namespace) -> None:
    topology = Topology(
        lans=("br-lan", "eth0.100"),
        lan_networks=(
            ("br-lan", IPv4Network("192.168.0.0/16")),
            ("eth0.100", IPv4Network("10.9.8.0/31")),
        ),
        wans=("wan0", "wan1"),
        direct_exits=("wan0", "wan1"),
    )
    plan = Plan(
        policy=GlobalPolicy(unmanaged=MARK_DIRECT, resolvers=("9.9.9.9",)),
        whitelist=WhitelistPlan(
            mark=MARK_DIRECT,
            ranges=("1.0.0.0-1.0.0.0", "1.1.0.0-1.1.255.255", "8.8.8.8-8.8.8.11"),
            sniffers={MARK_DIRECT: node_mark(9)},
            tcp_ports=(80, 443),
            udp_ports=(443,),
        ),
        hosts={f"10.1.{i // 250}.{i % 250 + 1}": node_mark(i % 50 + 1) for i in range(1000)},
        nets={"10.2.0.0-10.2.0.255": node_mark(1), "10.2.1.0-10.2.1.6": egress_mark(3)},
        instances={"node:1": node_instance(1, udp=False)},
        egresses={"wan0": Egress(number=3, resolvers=("9.9.9.9",))},
    )

    def body() -> None:
        nft = Nft()
        wanted = script.elements(plan, topology, {"node:1": 20_001})
        assert len(wanted["hosts"]) == 1000
        assert wanted["pairs"]
        for _ in range(2):  # onto an empty ruleset, and onto itself
            nft.run(script.load(wanted))
            chains = nft.chains()
            for name, content in wanted.items():
                assert nft.elements(name) == {as_listed(k): v for k, v in content.items()}, name
        assert nft.chains() == chains

    namespace.run(body)


def test_missing_tables_and_sets_are_none(namespace: Namespace) -> None:
    def body() -> None:
        nft = Nft()
        assert nft.chains() is None
        assert nft.elements("hosts") is None
        nft.run(TABLE)
        assert nft.elements("hosts") == {}
        assert nft.elements("nothing") is None

    namespace.run(body)


def test_concurrent_threads_take_turns(namespace: Namespace) -> None:
    def body() -> dict[str, str] | None:
        nft = Nft()
        nft.run(TABLE)

        def add(part: int) -> None:
            for i in range(100):
                nft.run(f"add element inet egressd hosts {{ 10.0.{part}.{i} : {part + 1} }}")

        threads = [threading.Thread(target=add, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return nft.elements("hosts")

    elements = namespace.run(body)
    assert elements is not None
    assert elements == {f"10.0.{p}.{i}": f"{p + 1:#010x}" for p in range(4) for i in range(100)}


def test_reading_does_not_slow_the_next_change(namespace: Namespace) -> None:
    def body() -> tuple[float, float]:
        nft = Nft()
        many = ", ".join(f"10.{i >> 8}.{i & 255}.1 : 7" for i in range(20_000))
        nft.run(TABLE + f"add element inet egressd hosts {{ {many} }}\n")

        def change() -> float:
            began = time.process_time()
            nft.run(
                "delete element inet egressd hosts { 10.0.7.1 }\n"
                "add element inet egressd hosts { 10.0.7.1 : 8 }\n"
            )
            return time.process_time() - began

        alone = [change() for _ in range(9)]
        after = []
        for _ in range(9):
            assert nft.chains() is not None
            after.append(change())
        return sorted(alone)[4], sorted(after)[4]

    alone, after = namespace.run(body)
    assert after < 8 * alone


def test_transactions_affect_their_own_namespace_only(namespace: Namespace) -> None:
    with Namespace() as other:
        namespace.run(lambda: Nft().run(TABLE))
        assert other.shell("nft list ruleset") == ""
        assert "egressd" in namespace.shell("nft list ruleset")


_WATCH = """
import sys
from egressd.netd.kernel.nft import Nft, is_library_replaced
Nft()
for _ in range(3):
    print(is_library_replaced(), flush=True)
    sys.stdin.readline()
"""


def test_an_upgrade_of_the_library_is_seen(tmp_path: Path) -> None:
    (installed,) = Path("/usr/lib").glob("*/libnftables.so.1")
    copy, newer = tmp_path / "libnftables.so.1", tmp_path / "newer"
    shutil.copy(installed, copy)
    with subprocess.Popen(
        [sys.executable, "-c", _WATCH],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as watch:
        assert watch.stdin is not None
        assert watch.stdout is not None
        assert watch.stdout.readline() == "False\n"
        shutil.copy(installed, newer)
        newer.rename(copy)  # as dpkg(1) replaces a file
        print(file=watch.stdin, flush=True)
        assert watch.stdout.readline() == "True\n"
        copy.unlink()
        print(file=watch.stdin, flush=True)
        assert watch.stdout.readline() == "True\n"
        watch.stdin.close()
