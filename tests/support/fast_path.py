"""The kernel's view of the fast path of known flows in a lab's router."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from egressd.model.device import InterfaceRoles
from egressd.model.errors import Failed
from egressd.model.messages import RuleCount
from egressd.model.plan import Egress, Limit, Plan
from egressd.netd.kernel import machine_facts as kernel_facts
from egressd.netd.kernel.fast_path import FastPath
from egressd.planner.registry import MARK_DIRECT
from egressd.planner.topology import discover
from egressd_lab.client import Connection
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from tests.support.known_flows import passed_by_rule_here, passed_here, programs_here
from tests.support.netns import JoinedNamespace, Namespace


def hooked(lab: Lab) -> set[str]:
    """Return the interfaces of the router that have the classifier."""
    with JoinedNamespace(lab.router.namespace) as router:
        return set(router.run(programs_here))


def passed(lab: Lab, client: int) -> RuleCount:
    """Return the counts of a client's traffic on the fast path."""
    with JoinedNamespace(lab.router.namespace) as router:
        return router.run(passed_here, lab.client(client).address)


def passed_by_rule(lab: Lab, network: str) -> RuleCount:
    """Return the counts of the traffic of a CIDR rule's clients on the fast path."""
    (rule,) = (it["id"] for it in lab.api.get("/rules")["data"] if it["ip"] == network)
    with JoinedNamespace(lab.router.namespace) as router:
        return router.run(passed_by_rule_here, rule)


def counted(lab: Lab, rule: str) -> int:
    """Return the bytes of a rule both ways, as the device counts them. `rule`: its address."""
    count = lab.api.ask("GET", "/ops/counters").body["data"].get(rule, {})
    return int(count.get("upload_bytes", 0)) + int(count.get("download_bytes", 0))


def talk(connection: Connection, times: int = 20) -> None:
    """Exchange messages repeatedly over an existing connection."""
    for number in range(times):
        assert connection.exchange(f"message {number}").error == ""


def is_cut(connection: Connection, token: str = "") -> bool:
    """True if a connection gets no more answers."""
    with suppress(Failed):
        return connection.exchange(token or new_token(), timeout=1).error != ""
    return True


def takes_it(lab: Lab, client: int, connection: Connection) -> bool:
    """True if messages over a connection take the fast path, both ways."""
    before = passed(lab, client)
    talk(connection)
    after = passed(lab, client)
    return after.up_packets > before.up_packets and after.down_packets > before.down_packets


def takes_it_by(lab: Lab, network: str, connection: Connection) -> bool:
    """True if messages of a CIDR rule's client take the fast path, both ways."""
    before = passed_by_rule(lab, network)
    talk(connection)
    after = passed_by_rule(lab, network)
    return after.up_packets > before.up_packets and after.down_packets > before.down_packets


@contextmanager
def lan_and_wan(router: Namespace) -> Iterator[None]:
    """Give a router a LAN, and a WAN with a default route."""
    with Namespace() as outside:
        router.cable("lan0", outside, "client")
        router.cable("wan1", outside, "isp")
        outside.shell("ip link set client up; ip link set isp up")
        router.shell(
            "ip address add 10.77.0.1/24 dev lan0; ip link set lan0 up;"
            "ip address add 198.51.100.10/24 dev wan1; ip link set wan1 up;"
            "ip route add default via 198.51.100.1"
        )
        yield


CLIENT = "10.77.0.11"


def ask_again(path: FastPath) -> None:
    """Do the fast path's part of a full look at the network."""
    roles = InterfaceRoles(lan=("lan0",), wan=("wan1",))
    seen = kernel_facts.read()
    topology = discover(seen, roles)
    plan = Plan(
        hosts={CLIENT: MARK_DIRECT},
        limits={CLIENT: Limit(number=1, upload_kbps=0, download_kbps=0)},
        egresses={"wan1": Egress(number=1)},
    )
    path.follow(plan, seen, topology, roles, {})
    path.sync()
