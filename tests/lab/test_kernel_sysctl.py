"""Kernel parameters of a network namespace."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from egressd.netd.kernel import sysctl, sysctl_record
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

FORWARD = "net/ipv4/ip_forward"


def test_each_namespace_has_its_own_parameters() -> None:
    outside = Path("/proc/sys", FORWARD).read_text()
    with Namespace() as one, Namespace() as two:
        assert one.run(sysctl.write, {FORWARD: "1"}).changed == {FORWARD: "0"}
        assert one.run(sysctl.write, {FORWARD: "1"}) == sysctl.Written({}, ())
        assert two.run(Path("/proc/sys", FORWARD).read_text).strip() == "0"
    assert Path("/proc/sys", FORWARD).read_text() == outside


def test_interfaces_may_have_dots_or_be_missing() -> None:
    with Namespace() as namespace:
        namespace.shell("ip link add eth0.7 type veth peer name eth0.8")
        wanted = {
            f"net/ipv4/conf/{name}/rp_filter": "0" for name in ("all", "default", "eth0.7", "gone0")
        }
        namespace.shell("echo 1 > /proc/sys/net/ipv4/conf/eth0.7/rp_filter")
        done = namespace.run(sysctl.write, wanted)
        assert done.changed["net/ipv4/conf/eth0.7/rp_filter"] == "1"
        assert "net/ipv4/conf/gone0/rp_filter" not in done.changed
        assert done.problems == ()


def test_an_invalid_value_is_reported_and_the_others_are_set() -> None:
    with Namespace() as namespace:
        done = namespace.run(sysctl.write, {"net/ipv4/ip_default_ttl": "9999", FORWARD: "1"})
        assert done.problems == ("could not set net/ipv4/ip_default_ttl to 9999: Invalid argument",)
        assert done.changed == {FORWARD: "0"}


def test_reserved_ports_are_not_given_and_foreign_reservations_stay() -> None:
    with Namespace() as namespace:
        namespace.shell("ip link set lo up")
        namespace.shell("echo 1024-1030 > /proc/sys/net/ipv4/ip_local_reserved_ports")
        namespace.shell("echo '1024 1040' > /proc/sys/net/ipv4/ip_local_port_range")
        for _ in range(2):
            namespace.run(sysctl.reserve_ports, (range(1033, 1040),))
        assert namespace.run(_given, 3) == {1031, 1032, 1040}


def test_a_long_list_of_reserved_ports_is_kept_whole() -> None:
    many = range(20_000, 24_000, 2)
    with Namespace() as namespace:
        namespace.run(sysctl.reserve_ports, [range(port, port + 1) for port in many])
        namespace.run(sysctl.reserve_ports, (range(30_000, 30_001),))
        shown = namespace.shell("cat /proc/sys/net/ipv4/ip_local_reserved_ports")
        assert shown.strip().split(",") == [*map(str, many), "30000"]


def _given(number: int) -> set[int]:
    """Return the ports of `number` sockets that ask for any port."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(number)]
    with ExitStack() as stack:
        for each in sockets:
            stack.enter_context(each).bind(("127.0.0.1", 0))
        return {each.getsockname()[1] for each in sockets}


def test_recorded_parameters_are_put_back_with_what_changed_with_them(tmp_path: Path) -> None:
    """``ip_forward`` changes other parameters, which stay changed when it is off again."""
    record = tmp_path / "sysctls"
    names = (
        FORWARD,
        "net/ipv4/conf/all/accept_redirects",
        "net/ipv4/conf/eth0/forwarding",
        "net/ipv4/conf/lo/forwarding",
        "net/ipv4/ip_local_reserved_ports",
    )
    many = [range(port, port + 1) for port in range(20_000, 24_000, 2)]

    def values() -> list[str]:
        return [Path("/proc/sys", name).read_text() for name in names]

    def change() -> None:
        sysctl.keep_record(record)
        sysctl.write({FORWARD: "1"})
        sysctl.reserve_ports((range(30_000, 30_001),))

    with Namespace() as namespace:
        namespace.shell("ip link add eth0 type veth peer name eth1")
        namespace.shell("cd /proc/sys/net/ipv4/conf; echo 0 > all/accept_redirects")
        namespace.shell("echo 1 > /proc/sys/net/ipv4/conf/eth0/forwarding")
        namespace.run(sysctl.reserve_ports, many)
        before = namespace.run(values)
        namespace.run(change)
        assert namespace.run(values) != before
        assert namespace.run(sysctl_record.restore, record) == []
        assert namespace.run(values) == before
    with Namespace() as another:
        assert another.run(sysctl_record.read, record) == {}
