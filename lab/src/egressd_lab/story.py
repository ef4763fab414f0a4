"""The demonstration: a small network, a rule change, a node that dies, and a search for leaks.

`play` yields each scene as it ends. It uses egressd as its users do, over the HTTP API.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address, ip_network
from typing import Any, Final

from egressd_lab import scenes
from egressd_lab import spec as plan
from egressd_lab.capture import Capture
from egressd_lab.client import Client
from egressd_lab.device import rule_body
from egressd_lab.lab import Lab
from egressd_lab.nodes import Node
from egressd_lab.observed import Flow
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from egressd_lab.timeline import Timeline

TARGETS: Final = ("socks5", "ss", "DIRECT", "Interface:wan2", "REJECT")
"""The rules' targets, from client1 on. One more client has no rule at all."""
NO_RULE: Final = "(no rule)"
CHANGED_TO: Final = "http"
WEB: Final = plan.WEB_SERVERS[0]
RESOLVER: Final = plan.RESOLVERS["google"]
FORBIDDEN: Final = plan.WEB_SERVERS[1]
FORBIDDEN6: Final = plan.SERVERS6[0]
FORBIDDEN_RESOLVER: Final = plan.RESOLVERS["quad9"]
"""Addresses that only clients without a way out send to. Any packet that reaches them has leaked,
even without a token, such as a bare SYN or a TLS hello.
"""
_LANS: Final = tuple(map(ip_network, ("10.77.0.0/16", str(plan.GUEST_NETWORK), f"{plan.LAN6}/64")))
BACK_SECONDS: Final = 15.0

SPEC: Final = LabSpec(clients=len(TARGETS) + 1, nodes=("socks5", "ss", "http"))


class Actor:
    """A client and the target that its rule names at the moment."""

    def __init__(self, client: Client, target: str) -> None:
        self.client = client
        self.target = target
        self.rule: dict[str, Any] = {}
        """The rule, as ``GET /rules`` returned it; empty for none."""


class Story:
    """The demonstration in a lab that has been built."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._actors = [
            Actor(client, target)
            for client, target in zip(lab.clients, (*TARGETS, NO_RULE), strict=True)
        ]
        self._allowed: dict[str, str] = {}
        """Token -> the target that its packets may leave by."""

    def play(self) -> Iterator[scenes.AnyScene]:
        """Play it, a scene at a time."""
        yield self.control()
        yield self.start()
        with self._lab.internet.capture() as capture:
            capture.prove()
            yield self.departures()
            yield self.change()
            yield self.outage(capture)
            yield self.comeback()
            yield self.verdict(capture)

    # --- The scenes. ---

    def control(self) -> scenes.Control:
        """Let all clients out without egressd: every client must be seen leaving."""
        begun = time.monotonic()
        with self._lab.plain_router(), self._lab.internet.capture() as capture:
            tokens = [new_token() for _ in self._actors]
            for actor, token in zip(self._actors, tokens, strict=True):
                actor.client.udp_echo(token)
            seen = sum(1 for token in tokens if "isp1" in capture.interfaces_of(token))
        return scenes.Control(
            seconds=time.monotonic() - begun,
            ok=seen == len(tokens),
            seen=seen,
            clients=len(tokens),
        )

    def start(self) -> scenes.Started:
        """Start egressd and give it the nodes and the rules."""
        begun = time.monotonic()
        self._lab.start_egressd()
        health = time.monotonic() - begun
        api = self._lab.api
        for node in self._lab.nodes.values():
            api.post("/nodes", node.draft())
        rules_begun = time.monotonic()
        for actor in self._actors[: len(TARGETS)]:
            api.post("/rules", {"ip": actor.client.address, "target_node": actor.target})
        rule_seconds = (time.monotonic() - rules_begun) / len(TARGETS)
        rules = {rule["ip"]: rule for rule in api.get("/rules")["data"]}
        for actor in self._actors:
            actor.rule = rules.get(actor.client.address, {})
        return scenes.Started(
            seconds=time.monotonic() - begun,
            ok=len(rules) == len(TARGETS),
            rules=len(rules),
            nodes=len(self._lab.nodes),
            health_seconds=health,
            rule_seconds=rule_seconds,
        )

    def departures(self) -> scenes.Departures:
        """Let all clients try to get out by HTTP, UDP and DNS."""
        begun = time.monotonic()
        with ThreadPoolExecutor(len(self._actors)) as pool:
            rows = list(pool.map(self._departure, self._actors))
        return scenes.Departures(
            seconds=time.monotonic() - begun, ok=all(row.ok for row in rows), rows=rows
        )

    def _departure(self, actor: Actor) -> scenes.Departure:
        token = self._token_of(actor)
        client = actor.client
        expected = self._expected(actor.target)
        server, resolver = (WEB, RESOLVER) if expected else (FORBIDDEN, FORBIDDEN_RESOLVER)
        web = client.http(f"http://{server}/{token}", timeout=3)
        echo = client.udp_echo(token, server, timeout=1)
        told = client.dns(f"{token}.{plan.WHOAMI}", resolver, timeout=3)
        dns = told.addresses[0] if told.addresses else ""
        udp_expected = expected if self._carries_udp(actor.target) else ""
        return scenes.Departure(
            client=client.name,
            address=client.address,
            target=actor.target,
            expected=expected,
            http=web.seen,
            udp=echo.seen,
            dns=dns,
            error=web.error,
            ok=web.seen == expected and echo.seen == udp_expected and dns == expected,
        )

    def change(self) -> scenes.Change:
        """Change one client's rule in the middle of all clients' downloads."""
        begun = time.monotonic()
        actor = self._actors[0]
        before = actor.target
        with Timeline([(a.client, a.target) for a in self._reaching()]) as timeline:
            timeline.watch(0.8)
            event_tick = timeline.ticks
            kept = rule_body(actor.rule)
            asked = time.monotonic()
            self._lab.api.put(f"/rules/{actor.rule['id']}", kept | {"target_node": CHANGED_TO})
            request_seconds = time.monotonic() - asked
            actor.target = CHANGED_TO
            token = self._token_of(actor)
            next_seen = actor.client.http(f"http://{WEB}/{token}").seen
            timeline.watch(1.2)
            held = timeline.held(actor.client)
        return scenes.Change(
            seconds=time.monotonic() - begun,
            ok=next_seen == self._expected(CHANGED_TO) and all(row.ok for row in held),
            client=actor.client.name,
            tick_seconds=timeline.TICK,
            event_tick=event_tick,
            held=held,
            before=before,
            after=CHANGED_TO,
            request_seconds=request_seconds,
            next_seen=next_seen,
        )

    def outage(self, capture: Capture) -> scenes.Outage:
        """Kill a node in the middle of all clients' downloads; its client tries every way out."""
        begun = time.monotonic()
        actor = self._actors[1]
        node = self._lab.nodes[actor.target]
        token = self._token_of(actor)
        with Timeline([(a.client, a.target) for a in self._reaching()]) as timeline:
            timeline.watch(0.8)
            event_tick = timeline.ticks
            node.program.kill()
            blocked = actor.client.http(f"http://{FORBIDDEN}/{token}")
            with ThreadPoolExecutor(1) as pool:
                trying = pool.submit(
                    actor.client.every_way,
                    token,
                    address=FORBIDDEN,
                    address6=FORBIDDEN6,
                    resolver=FORBIDDEN_RESOLVER,
                    timeout=1.5,
                )
                timeline.watch(1.2)
            tried = trying.result()
            held = timeline.held(actor.client)
        got_out = [kind for kind, result in tried.items() if result.ok]
        packets = sum(
            flow.packets
            for flow in capture.read().flows
            if flow.token == token or (_is_forbidden(flow) and not flow.outgoing)
        )
        return scenes.Outage(
            seconds=time.monotonic() - begun,
            ok=not blocked.ok and not got_out and not packets and all(row.ok for row in held),
            client=actor.client.name,
            tick_seconds=timeline.TICK,
            event_tick=event_tick,
            held=held,
            node=node.name,
            tries=len(tried) + 1,
            got_out=got_out,
            error_seconds=blocked.seconds,
            packets=packets,
        )

    def comeback(self) -> scenes.Return:
        """Start the node again and wait until its client is served."""
        actor = self._actors[1]
        node = self._lab.nodes[actor.target]
        token = self._token_of(actor)
        begun = time.monotonic()
        self._lab.start_node(node)
        while True:
            reply = actor.client.http(f"http://{WEB}/{token}", timeout=2)
            back = time.monotonic() - begun
            if reply.ok or back > BACK_SECONDS:
                break
            time.sleep(0.05)
        return scenes.Return(
            seconds=back,
            ok=reply.seen == node.address,
            node=node.name,
            client=actor.client.name,
            seen=reply.seen,
            back_seconds=back,
        )

    def verdict(self, capture: Capture) -> scenes.Verdict:
        """Search everything captured for packets in forbidden places."""
        begun = time.monotonic()
        captured = capture.read()
        leaks = [flow for flow in captured.flows if not self._may_pass(flow)]
        return scenes.Verdict(
            seconds=time.monotonic() - begun,
            ok=not leaks,
            packets=captured.total,
            tokens=len(self._allowed),
            leaks=leaks,
        )

    # --- Expectations. ---

    def _reaching(self) -> Sequence[Actor]:
        """Return the actors whose target leads anywhere."""
        return [actor for actor in self._actors if self._expected(actor.target)]

    def _token_of(self, actor: Actor) -> str:
        token = new_token()
        self._allowed[token] = actor.target
        return token

    def _node(self, target: str) -> Node | None:
        return self._lab.nodes.get(target)

    def _expected(self, target: str) -> str:
        """Return the address that servers should see for a target; empty for none."""
        if node := self._node(target):
            return node.address
        wan = {"DIRECT": 1, "Interface:wan2": 2}.get(target)
        return self._lab.wan(wan).address if wan else ""

    def _carries_udp(self, target: str) -> bool:
        node = self._node(target)
        return node is None or bool(node.clash.get("udp"))

    def _may_pass(self, flow: Flow) -> bool:
        """True if a flow on the internet's side is on the way of its token's target.

        Packets that the internet itself sends are answers. A node's client is seen coming from the
        node, and on its way to the node.
        """
        if flow.outgoing or flow.interface == "lo":
            return True
        if _is_forbidden(flow) or any(ip_address(flow.source) in lan for lan in _LANS):
            return False
        if flow.token not in self._allowed:
            return True
        target = self._allowed[flow.token]
        if node := self._node(target):
            return flow.interface == node.link or flow.destination == node.address
        wan = {"DIRECT": 1, "Interface:wan2": 2}.get(target)
        return wan is not None and flow.interface == self._lab.wan(wan).far


def _is_forbidden(flow: Flow) -> bool:
    return flow.destination in (FORBIDDEN, FORBIDDEN6, FORBIDDEN_RESOLVER)


def play() -> Iterator[scenes.AnyScene]:
    """Build a lab, play the story in it, and remove it."""
    begun = time.monotonic()
    with Lab(SPEC) as lab:
        yield scenes.Built(
            seconds=time.monotonic() - begun,
            lab=lab.name,
            clients=len(lab.clients),
            wans={wan.interface: wan.address for wan in lab.wans},
            nodes={node.name: node.address for node in lab.nodes.values()},
        )
        yield from Story(lab).play()
