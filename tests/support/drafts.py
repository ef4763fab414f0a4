"""Drafts of what an operator makes, with values for the fields that a test leaves out."""

from __future__ import annotations

from typing import Any

from egressd.model.drafts import LineDraft, NodeDraft, ProxyServiceDraft, RuleDraft


def node(name: str = "tokyo", *, group: str = "", **config: Any) -> NodeDraft:
    """Return a socks5 node's draft; `config` are further keys of its configuration."""
    import json

    given = {"server": "198.51.100.7", "port": 1080} | config
    return NodeDraft(name=name, protocol="socks5", config_json=json.dumps(given), group=group)


def rule(ip: str = "10.0.0.5", target: str = "DIRECT", **fields: Any) -> RuleDraft:
    return RuleDraft(ip=ip, target_node=target, **fields)


def line(name: str = "l2tp_1", **fields: Any) -> LineDraft:
    given = {
        "type": name.partition("_")[0],
        "name": name,
        "server": "vpn.example.net",
        "username": "u",
        "password": "p",
    }
    return LineDraft(**(given | fields))


def service(name: str = "office", **fields: Any) -> ProxyServiceDraft:
    given: dict[str, Any] = {"name": name, "outbound_interface": "wan1", "port": 8080}
    return ProxyServiceDraft(**(given | fields))


class Make:
    """Constructors of drafts."""

    node = staticmethod(node)
    rule = staticmethod(rule)
    line = staticmethod(line)
    service = staticmethod(service)
