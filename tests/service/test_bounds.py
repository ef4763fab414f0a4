"""Reports of bounds that were reached: with the client, and as the reason of a refusal."""

from __future__ import annotations

import msgspec
import pytest

from egressd.model.desired import Edit
from egressd.model.messages import Reached, Status
from egressd.model.nouns import ProxyService, Rule
from egressd.service.route_explanation import Protocol, explain, question
from tests.service.judged import RUNNING, STATE, Told, node, seen
from tests.support.use_cases import RESOLVERS

ONE, OTHER = "10.0.0.3", "10.0.0.9"
CONNECTIONS = "the bound of 2048 connections through nodes is reached: further ones are refused"
QUESTIONS = "more than 24 names a second are asked for: the rest gets no answer"
WITH_UDP = STATE.with_edits([node(1, "one", "g", udp=True)], 2)
SERVICE = ProxyService(
    id=4, name="office", outbound_interface="wan2", port=1080, username="u", password="p"
)


def full(kind: str, *sources: str, port: int = 0, bound: int = 2048) -> Status:
    reached = (Reached(kind=kind, source=each, port=port, bound=bound) for each in sources)
    return seen(reached=tuple(reached))


def test_each_reached_bound_and_its_end_are_reported_once_with_its_source() -> None:
    told = Told()
    assert told.take(full("connections", ONE)) == [("problem", ONE, f"{ONE}: {CONNECTIONS}")]
    assert told.take(full("connections", ONE)) == []
    assert told.take(full("connections", ONE, OTHER)) == [
        ("problem", OTHER, f"{OTHER}: {CONNECTIONS}")
    ]
    assert told.take(full("connections", OTHER)) == [
        ("problem", ONE, f"over: {ONE}: {CONNECTIONS}")
    ]
    assert [notice.is_bad for notice in told.notices] == [False]
    assert told.take(RUNNING) == [("problem", OTHER, f"over: {OTHER}: {CONNECTIONS}")]


def test_several_sources_at_one_bound_are_one_problem() -> None:
    sources = [f"10.0.0.{number}" for number in range(1, 6)]
    assert Told().judge.take(full("connections", *sources)).problems == (
        f"10.0.0.1, 10.0.0.2, 10.0.0.3 and 2 others: {CONNECTIONS}",
    )


def test_services_are_reported_by_name() -> None:
    made = STATE.with_edits([Edit("services", 4, SERVICE)], 2)
    status = full("strangers", "203.0.113.9", port=1080, bound=0)
    (problem,) = Told(made).judge.take(status).problems
    assert problem.startswith("203.0.113.9: connections to the proxy service office do not sign in")
    (problem,) = Told(made).judge.take(full("service", "", port=1080)).problems
    assert problem.startswith("many callers of the proxy service office do not sign in")
    assert Told(STATE).judge.take(full("service", "", port=1080)).problems == ()


@pytest.mark.parametrize(
    ("kind", "protocol", "port", "is_refused"),
    [
        ("connections", "tcp", 443, True),
        ("connections", "udp", 443, False),
        ("connections", "tcp", 53, False),
        ("sessions", "udp", 443, True),
        ("sessions", "tcp", 443, False),
        ("sessions", "udp", 53, False),
        ("questions", "udp", 53, True),
        ("questions", "tcp", 53, True),
        ("questions", "tcp", 443, False),
        ("network_connections", "tcp", 443, True),
        ("network_connections", "udp", 443, False),
        ("network_sessions", "udp", 443, True),
        ("network_sessions", "tcp", 443, False),
        ("resolver", "tcp", 53, True),
        ("resolver", "udp", 53, False),
    ],
)
def test_the_explanation_names_the_bound_and_not_a_failing_node(
    kind: str, protocol: Protocol, port: int, is_refused: bool
) -> None:
    status = full(kind, ONE)
    failing = msgspec.structs.replace(status, failing={"node:1": "timed out"})
    asked = question(ONE, "192.0.2.1", port, protocol)
    told = explain(asked, WITH_UDP, RESOLVERS, status)
    assert told.target == "one"
    assert told.is_blocked == is_refused
    text = next(iter(Told().judge.take(status).problems)).removeprefix(f"{ONE}: ")
    assert (told.reason == text) == is_refused
    assert told.doubts == (() if is_refused else (text,))
    if is_refused:
        assert explain(asked, WITH_UDP, RESOLVERS, failing).reason == text


def test_a_bound_concerns_no_other_clients_or_kernel_routed_ones() -> None:
    status = full("connections", "10.0.0.1", OTHER)
    for client in (ONE, "10.0.0.1"):  # one has a node, the other leaves directly
        told = explain(question(client, "192.0.2.1", 443, "tcp"), STATE, RESOLVERS, status)
        assert not told.is_blocked


@pytest.mark.parametrize(("client", "is_refused"), [(ONE, False), ("10.0.0.77", True)])
def test_a_networks_bound_concerns_clients_without_their_own_rule(
    client: str, is_refused: bool
) -> None:
    for_all = Rule(id=9, ip="10.0.0.0/24", target_node="one")
    state = WITH_UDP.with_edits([Edit("rules", 9, for_all)], 3)
    status = full("network_sessions", "10.0.0.0/24", bound=4096)
    told = explain(question(client, "192.0.2.1", 443, "udp"), state, RESOLVERS, status)
    assert told.is_blocked == is_refused
    assert ("for all addresses of a network" in told.reason) == is_refused
    assert told.doubts == ()
    elsewhere = full("network_sessions", "10.0.2.0/24", bound=4096)
    asked = question(client, "192.0.2.1", 443, "udp")
    assert not explain(asked, state, RESOLVERS, elsewhere).is_blocked


def test_dns_queries_are_metered_for_every_target() -> None:
    status = full("questions", "10.0.0.1", bound=24)
    told = explain(question("10.0.0.1", "192.0.2.1", 53, "udp"), STATE, RESOLVERS, status)
    assert (told.is_blocked, told.reason) == (True, QUESTIONS)
