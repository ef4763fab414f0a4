"""Clients with too many connections, and idle connections to resolvers."""

from __future__ import annotations

from ipaddress import IPv4Address
from socket import IPPROTO_TCP, IPPROTO_UDP

from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.health.client_bounds import IDLE_S, PERIOD_S, Counted, Idlers, greedy
from egressd.netd.kernel.sockets import ResolverConnection
from egressd.planner.bounds import Bounds
from egressd.planner.nft import Greedy

BOUNDS = Bounds()
MORE = 1.25
"""Factor of a bound that leaves room for connections which are about to close."""
TCP_OF_A_NETWORK = BOUNDS.connections_of_network


def counted(tcp: dict[str, int], udp: dict[str, int] | None = None) -> Counted:
    both = ((IPPROTO_TCP, tcp), (IPPROTO_UDP, udp or {}))
    return {
        (protocol, IPv4Address(client).packed): count
        for protocol, counts in both
        for client, count in counts.items()
    }


# --- Clients and networks. --------------------------------------------------------------------


def test_a_client_above_its_bound_is_greedy() -> None:
    most = int(BOUNDS.connections * MORE)
    tcp, udp = {"10.0.0.7": most, "10.0.0.8": most + 1}, {"10.0.0.9": BOUNDS.sessions_kept + 1}
    found = greedy(counted(tcp, udp), BOUNDS, {*tcp, *udp})
    assert found == {Greedy("10.0.0.8", "tcp"), Greedy("10.0.0.9", "udp")}


def test_a_host_with_many_addresses_is_refused_but_not_its_neighbours() -> None:
    each = BOUNDS.connections - 1
    takers = {f"10.0.0.{n}": each for n in range(100, 101 + TCP_OF_A_NETWORK // each)}
    others = {"10.0.0.7": 300, "10.0.1.7": 300}
    found = greedy(counted(takers | others), BOUNDS, ())
    assert found == {Greedy(address, "tcp", is_of_network=True) for address in takers}


def test_a_client_with_its_own_rule_does_not_count_for_its_network() -> None:
    each = BOUNDS.connections - 1
    takers = {f"10.0.0.{n}": each for n in range(100, 101 + TCP_OF_A_NETWORK // each)}
    assert greedy(counted(takers), BOUNDS, {"10.0.0.100"}) == frozenset()


def test_connections_and_sessions_of_a_network_are_counted_separately() -> None:
    tcp = {f"10.0.0.{n}": TCP_OF_A_NETWORK // 20 for n in range(20)}
    udp = {f"10.0.0.{n}": BOUNDS.sessions_of_network_kept // 20 for n in range(20)}
    assert greedy(counted(tcp, udp), BOUNDS, ()) == frozenset()
    udp["10.0.0.7"] += 20
    assert greedy(counted(tcp, udp), BOUNDS, ()) == {Greedy("10.0.0.7", "udp", is_of_network=True)}


@given(st.lists(st.integers(1, 2048), max_size=10), st.lists(st.integers(1000, 2048), max_size=40))
def test_the_greediest_clients_of_a_network_are_refused_first(
    few: list[int], many: list[int]
) -> None:
    """The remaining clients have the least: together not more than the bound."""
    tcp = {f"10.0.0.{number}": count for number, count in enumerate((*few, *many))}
    refused = {each.client for each in greedy(counted(tcp), BOUNDS, ())}
    is_over = sum(tcp.values()) > TCP_OF_A_NETWORK
    assert bool(refused) == is_over
    if is_over:
        left = [count for client, count in tcp.items() if client not in refused]
        assert sum(left) <= TCP_OF_A_NETWORK
        assert max(left, default=0) < min(tcp[client] for client in refused)


# --- Connections to resolvers. ----------------------------------------------------------------


class Connection:
    """A connection that data comes and goes on at these seconds."""

    def __init__(self, received: list[float], sent: list[float]) -> None:
        self._received = received
        self._sent = sent

    def at(self, now: float) -> ResolverConnection:
        return ResolverConnection(
            sent_s=now - max((each for each in self._sent if each <= now), default=0.0),
            received_s=now - max((each for each in self._received if each <= now), default=0.0),
            id=b"one",
        )

    def ended(self, seconds: float = 60.0) -> float | None:
        """Return the second of its end; None if it goes on."""
        idlers, now = Idlers(), 0.0
        while now < seconds:
            asker = self.at(now)
            if idlers.among([asker], now):
                return now
            now += PERIOD_S
        return None


def test_an_idle_connection_is_ended() -> None:
    assert Connection([], []).ended() == IDLE_S
    assert Connection([0.5], [0.6]).ended() == IDLE_S + PERIOD_S


def test_a_connection_with_an_incomplete_query_is_ended() -> None:
    trickle = [0.5 + second for second in range(60)]
    assert Connection(trickle, []).ended() == IDLE_S + PERIOD_S
    assert Connection(trickle, [0.9]).ended() == IDLE_S + PERIOD_S


def test_an_unanswered_query_has_a_time_limit() -> None:
    assert Connection([5.0], []).ended() == 5.0 + IDLE_S + 1.0


def test_a_connection_with_repeated_queries_is_kept() -> None:
    """At every check a query waits for its answer."""
    asked = [each * PERIOD_S - 0.1 for each in range(1, 30)]
    assert Connection(asked, [each + 0.2 for each in asked]).ended() is None


@given(st.floats(0.1, IDLE_S - 0.1), st.floats(0.1, 4.0))
def test_a_connection_waiting_for_its_answer_is_kept(pause_s: float, takes_s: float) -> None:
    """The pauses and answer times stay below the idle limit and the engine's patience."""
    asked, sent, now = [], [], 0.0
    while now < 60.0:
        now += pause_s
        asked.append(now)
        now += takes_s
        sent.append(now)
    assert Connection(asked, sent).ended() is None


def test_an_ended_connection_is_forgotten() -> None:
    """The id of an ended connection may be that of another one later."""
    idlers = Idlers()
    asking = ResolverConnection(sent_s=25.0, received_s=0.5, id=b"one")
    assert idlers.among([asking], 1.0) == []
    assert idlers.among([], 3.0) == []
    assert idlers.among([asking], 30.0) == []
    assert idlers.among([asking], 30.0 + IDLE_S) == [asking]
