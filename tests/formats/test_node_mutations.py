"""A fuzz run over the node parsers: rows, links and documents, and the corpora, damaged at random.

Each result must be a reason, or a node that reads as valid, gives an engine outbound of its
protocol, and is the same after a round trip through its share link if the link can express it.
``EGRESSD_FUZZ=1000000`` sets the number of damaged texts.
"""

from __future__ import annotations

import json
import os
import random
from base64 import b64encode
from typing import Any

import pytest

from egressd.formats.config_json import read_config
from egressd.formats.nodes import NODE_IMPORT_TYPES, parse_nodes
from egressd.formats.rows import Accepted
from egressd.formats.share_links import parse_link, render_link
from egressd.model.drafts import BadRow, NodeDraft
from egressd.model.nouns import Node
from egressd.planner.options import options_of as engine_options
from egressd.planner.outbounds import build
from tests.support.nodes.corpora import cases

RUNS = int(os.environ.get("EGRESSD_FUZZ", "3000"))
UUID = "b831381d-6324-4d53-ad4f-8cda48b30811"
KEY = "A" * 43

SEEDS = (
    "203.0.113.7,1080,alice,secret,tokyo",
    '[2001:db8::1],1080,"a,b","c""d",paris',
    "203.0.113.7,8388,aes-256-gcm,secret,lima",
    f"vless|{UUID}|a.example|443|ws|tls|b.example|/p?x=1|h.example|||",
    f"vless|{UUID}|a.example|443|tcp|reality|b.example|||xtls-rprx-vision|{KEY}|0123|chrome|n",
    f"vmess|{UUID}|a.example|443|0|auto|grpc|tls|b.example|svc||n",
    "{name: a, type: trojan, server: a.example, port: 443, password: 0123, alpn: [h2, http/1.1]}",
    "name: b, type: hysteria2, server: a.example, ports: '443,8000-9000', password: p, up: 10 Mbps",
    f'{{"name": "c", "type": "tuic", "server": "a.example", "port": 1, "uuid": "{UUID}", '
    '"password": "p"}',
    "proxies:\n- name: d\n  type: ss\n  server: a.example\n  port: 1\n  cipher: aes-128-gcm\n"
    "  password: p\n  plugin: obfs\n  plugin-opts:\n    mode: tls\n    host: bing.com\n",
    "ss://YWVzLTI1Ni1nY206c2VjcmV0@203.0.113.7:8388/?plugin=obfs-local%3Bobfs%3Dhttp#n",
    "vmess://eyJ2IjoiMiIsInBzIjoibiIsImFkZCI6ImEuZXhhbXBsZSIsInBvcnQiOiI0NDMiLCJpZCI6ImI4MzEzODFkLTYz"
    "MjQtNGQ1My1hZDRmLThjZGE0OGIzMDgxMSIsIm5ldCI6IndzIiwidGxzIjoidGxzIn0=",
    f"vless://{UUID}@a.example:443?security=reality&pbk={KEY}&sid=01&fp=chrome&sni=b.example#n",
    "trojan://p%40ss@a.example:443?type=ws&path=%2Fw&host=h.example&sni=b.example#%E6%9D%B1",
    "hysteria://a.example:443?auth=p&upmbps=1&downmbps=2&obfs=xplus&obfsParam=o&peer=b.example#n",
    "hysteria2://p@a.example:443,8000-9000/?obfs=salamander&obfs-password=o&sni=b.example#n",
    f"tuic://{UUID}:p@a.example:443?congestion_control=bbr&alpn=h3#n",
    "anytls://p@a.example:443?sni=b.example#n",
    "wireguard://4JjCzOn2BSqbJyQ3kGxkEJQ1oPYL5b9EZ1bJm3l5fWk%3D@a.example:1?publickey=9YlLrCUdcj"
    "yTg62oTm%2F0u%2FLJ4Px01QuJTCjQ2xsF9jg%3D&address=10.2.0.2&reserved=1,2,3#n",
    "ssh://u:p@a.example:22?hk=ssh-ed25519%20AAAA#n",
    "socks5://YWxpY2U6c2VjcmV0@203.0.113.7:1080?udp=1#n",
    "https://u:p@a.example:443?sni=b.example#n",
)
TEXTS = (*SEEDS, *(case.text for case in cases() if len(case.text) < 3000))
SPICE = (
    *"\x00\x07\t\r\n\u2028\"'`\\|,;:#@/?&=%{}[]<>$~*!-_ 09aZ",
    "&amp;",
    "- ",
    "://",
    "vless://",
    "/*",
    "<<: *a",
    "&a ",
    "!!str ",
    "\ufeff",
    "\u200b",
    "=\r\n",
    "=3D",
    "\\ud83c",
    "proxies:\n",
    '{"proxies":[',
    "%00",
    "%0a",
    "..",
    "://",
    "NaN",
    "null",
    "true",
    "💥",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    "type: direct",
    "detour: x",
    "routing-mark: 1",
    "ca: /etc/shadow",
)


def damaged(chance: random.Random) -> str:
    text = chance.choice(TEXTS)
    for _ in range(chance.randint(1, 4)):
        at, end = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        match chance.randrange(5):
            case 0:
                text = text[:at] + text[end:]
            case 1:
                text = text[:end] + text[at:]
            case 2:
                other = chance.choice(TEXTS)
                text = text[:at] + other[chance.randrange(len(other)) :]
            case 3:
                text = text[:at] + chance.choice(SPICE) * chance.choice((1, 1, 2, 300)) + text[at:]
            case _:
                text = text[:at] + chance.choice(SPICE) + text[at + 1 :]
    return text if chance.random() < 0.9 else b64encode(text.encode()).decode()


def options_of(protocol: str, config_json: str) -> dict[str, Any]:
    """Return a node's options for the engine."""
    node = Node(id=1, name="n", protocol=protocol, config_json=config_json, group="", created_at="")
    options = engine_options(build(node))
    if options.get("tls", {}).get("server_name", "") == options.get("server"):
        del options["tls"]["server_name"]  # the default without it
    return options


def check(draft: NodeDraft) -> None:
    read_config(draft.protocol, draft.config_json)
    options = options_of(draft.protocol, draft.config_json)
    protocol = {"socks5": "socks", "ss": "shadowsocks"}.get(draft.protocol, draft.protocol)
    assert options["type"] == protocol
    assert not options.keys() & {"detour", "routing_mark", "bind_interface", "domain_resolver"}
    link = render_link(draft.name, draft.protocol, draft.config_json)
    if not link.lost:
        again = parse_link(link.text)
        assert options_of(again.protocol, json.dumps(again.config)) == options


@pytest.mark.timeout(120 + RUNS // 100)  # a million take minutes, or an hour on a busy machine
@pytest.mark.slow
def test_damaged_rows_and_links_give_valid_nodes_or_reasons() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    accepted = 0
    for run in range(RUNS):
        text = damaged(chance)
        try:
            for result in parse_nodes(chance.choice(NODE_IMPORT_TYPES), text):
                if isinstance(result, Accepted):
                    accepted += 1
                    check(result.draft)
                else:
                    assert isinstance(result, BadRow)
                    assert result.reason
        except BaseException as error:
            error.add_note(f"seed {seed}, run {run}: {text!r}")
            raise
    # Otherwise nearly every text would have been refused, and no node checked.
    assert accepted > RUNS / 100
