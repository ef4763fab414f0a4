"""No GET shows a secret to a token that may only read."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from egressd.formats.masking import MASK, masked_config
from tests.api.scopes import document_of, endpoints, token_of
from tests.support.nodes.configs import SSH_HOST_KEY, SSH_KEY, TUNNEL

if TYPE_CHECKING:
    from tests.support.api_device import Device

KEY = "0123456789abcdef"
CONFIG = {"server": "203.0.113.7", "port": 443}
UUIDS = [f"6ba7b810-9dad-11d1-80b4-00c04fd430c{n}" for n in range(5)]
NODES: list[tuple[str, dict[str, Any]]] = [
    ("socks5", {"username": "seed-user-1", "password": "seed-1"}),
    ("http", {"username": "u", "password": "seed-2", "headers": {"Authorization": "seed-3"}}),
    (
        "ss",
        {
            "cipher": "aes-256-gcm",
            "password": "seed-4",
            "plugin": "v2ray-plugin",
            "plugin-opts": {"mode": "websocket", "host": "cdn.example.com", "path": "/seed-5"},
        },
    ),
    (
        "vmess",
        {
            "uuid": UUIDS[0],
            "alterId": 0,
            "cipher": "auto",
            "network": "ws",
            "ws-opts": {"path": "/seed-6", "headers": {"X-Key": "seed-7"}},
        },
    ),
    (
        "vless",
        {
            "uuid": UUIDS[1],
            "tls": True,
            "servername": "www.example.com",
            "client-fingerprint": "chrome",
            "reality-opts": {
                "public-key": "Lmm1hRfqLPnQZgNJ_PJB3n6CKYXTb5V6m7gbDxWHfVU",
                "short-id": KEY,
            },
        },
    ),
    ("trojan", {"password": "seed-8", "sni": "www.example.com", "their-own-key": ["seed-9"]}),
    ("hysteria", {"auth-str": "seed-23", "obfs": "seed-24", "up": 1, "down": 1}),
    ("hysteria2", {"password": "seed-10", "obfs": "salamander", "obfs-password": "seed-11"}),
    ("tuic", {"uuid": UUIDS[2], "password": "seed-12"}),
    ("anytls", {"password": "seed-13"}),
    (
        "ssh",
        {
            "username": "seed-user-2",
            "password": "seed-21",
            "private-key": list(SSH_KEY),
            "private-key-passphrase": "seed-22",
            "host-key": [SSH_HOST_KEY],
        },
    ),
    ("wireguard", {**TUNNEL, "pre-shared-key": TUNNEL["public-key"]}),
    ("socks5", {"password": "seed-14", "username": "u", "notes": {"their": {"token": "seed-15"}}}),
]
SECRETS = [
    *(f"seed-{n}" for n in range(1, 26)),
    "seed-user-1",
    "seed-user-2",
    SSH_KEY[1],
    TUNNEL["private-key"],
    TUNNEL["public-key"],
    *UUIDS[:3],
    KEY,
]
"""Every secret that the device is given, apart from its tokens."""
QUERIES = {
    "/svc/api/v1/nodes/delay": {"name": "node-0"},
    "/ops/explain": {"client": "10.0.0.5", "destination": "example.com"},
    "/ops/history/traffic": {"by": "target", "key": "DIRECT"},
    "/ops/history/top": {"by": "client"},
}
NAMES = {"/ops/history/nodes/{name}": "node-0", "/ops/history/groups/{name}": "hk"}


async def seeded(device: Device) -> None:
    """Make objects of every kind with secrets in every field that holds one."""
    for number, (protocol, fields) in enumerate(NODES):
        config = json.dumps(CONFIG | fields)
        body = {"name": f"node-{number}", "protocol": protocol, "config_json": config}
        await device.answer("POST", "/nodes", body | {"group": "hk"})
    url = f"http://device/ops/nodes/{device.bench.state.node_by_name['node-0']}"
    page = {"change_ip_url": "https://seller.test/?key=seed-25"}
    assert (await device.client.patch(url, json=page)).is_success
    line = {"server": "vpn.example.com", "username": "office"}
    for name, secrets in (
        ("l2tp_1", {"type": "l2tp", "password": "seed-16", "secret": "seed-17"}),
        ("pptp_1", {"type": "pptp", "password": "seed-18"}),
    ):
        await device.answer("POST", "/vpn-lines", {**line, **secrets, "name": name})
    for number, port in ((19, 18080), (20, 18081)):
        service = {"name": f"s{number}", "outbound_interface": "wan1", "port": port}
        more = {"username": "office", "password": f"seed-{number}"}
        await device.answer("POST", "/proxy-services", service | more)
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "Group_hk"})
    # No answer shows it again, whatever the scope.
    channel = {"name": "phone", "url": "ntfys://ntfy.example.org/seed-alert", "via": "DIRECT"}
    made = await device.client.post("http://device/ops/alerts/channels", json=channel)
    assert made.is_success, made.text


async def answers(device: Device, token: str) -> dict[str, str]:
    """Return the answer to each GET that a token may send, by URL: of a fresh device, whose ids and
    revisions are few.
    """
    client = device.client_at("192.0.2.10", token)
    found = {}
    for method, path, _ in endpoints(await document_of(device)):
        if method != "get" or path in ("/ops/openapi.json", "/ops/docs"):
            continue
        if "{key}" in path:  # a token opens none of them, and wrong keys are answered late
            continue
        sent = path.replace("{name}", NAMES.get(path, "l2tp_1")).replace("{type}", "l2tp")
        if path == "/ops/events":
            await device.events.put(None)
        one_by_one = re.search(r"\{(id|revision)\}", path)
        for number in range(device.bench.ledger.revision + 1) if one_by_one else [0]:
            url = re.sub(r"\{(id|revision)\}", str(number), f"http://device{sent}")
            response = await client.get(url, params=QUERIES.get(path))
            if response.status_code == 200:
                found[url] = response.text
    return found


async def test_no_get_with_a_read_token_contains_a_secret(fresh_device: Device) -> None:
    device = fresh_device
    await seeded(device)
    other, _ = await device.tokens.create("other", ["admin"], None, "a test")
    shown = await answers(device, await token_of(device, "read"))
    assert len(shown) > 30
    for kind in ("changes", "nodes", "lines", "proxy-services"):
        assert any(f"/ops/{kind}/" in url for url in shown), kind
    for path, text in shown.items():
        for secret in (*SECRETS, other, device.token):
            assert secret not in text, (path, secret)
        # JSON within JSON: what is escaped once more would be missed above
        assert "seed" not in text, path


async def test_a_write_token_sees_each_secret(fresh_device: Device) -> None:
    """Else the test above would find nothing in answers that hold nothing."""
    device = fresh_device
    await seeded(device)
    text = "\n".join((await answers(device, await token_of(device, "write"))).values())
    assert [secret for secret in SECRETS if secret not in text] == []


async def test_backups_and_links_are_refused_to_a_read_token(device: Device) -> None:
    await seeded(device)
    client = device.client_at("192.0.2.10", await token_of(device, "read"))
    for path in ("/ops/backup", "/ops/nodes/links"):
        response = await client.get(f"http://device{path}")
        assert response.status_code == 403
        assert response.json() == {"error": "API_ENDPOINT_NOT_ALLOWED"}


async def test_lists_with_and_without_secrets_have_different_tags(device: Device) -> None:
    await seeded(device)
    reader = device.client_at("192.0.2.10", await token_of(device, "read"))
    for path in ("/nodes", "/vpn-lines", "/proxy-services"):
        url = f"http://device/svc/api/v1{path}"
        whole, masked = await device.client.get(url), await reader.get(url)
        assert whole.headers["etag"] != masked.headers["etag"]
        known = {"if-none-match": whole.headers["etag"]}
        assert (await reader.get(url, headers=known)).text == masked.text
        assert (await device.client.get(url)).text == whole.text
        assert MASK in masked.text


async def test_the_tag_of_a_masked_object_tells_nothing_of_its_secrets(
    fresh_device: Device,
) -> None:
    """Past fault: the tag was the digest of the whole object, so that a reader could try passwords
    on it without asking the device.
    """
    device = fresh_device
    await seeded(device)
    listed = {"name": "seller", "url": "https://example.com/seed-26", "headers": {"X": "seed-27"}}
    made = await device.client.post("http://device/ops/subscriptions", json=listed)
    assert made.is_success, made.text
    reader = device.client_at("192.0.2.10", await token_of(device, "read"))
    node, listed_as = device.bench.state.node_by_name["node-0"], made.json()["id"]
    account = {"username": "seed-user-1", "password": "other"}
    for path, secret in (
        (f"nodes/{node}", {"config_json": json.dumps(CONFIG | account)}),
        (f"nodes/{node}", {"change_ip_url": "https://seller.test/?key=other"}),
        ("lines/1", {"password": "other"}),
        ("lines/1", {"secret": "other"}),
        ("proxy-services/1", {"password": "other"}),
        ("alerts/channels/1", {"url": "ntfys://ntfy.example.org/other"}),
        (f"subscriptions/{listed_as}", {"url": "https://example.com/other"}),
        (f"subscriptions/{listed_as}", {"headers": {"X": "other"}}),
    ):
        url = f"http://device/ops/{path}"
        before = [(await each.get(url)).headers["etag"] for each in (reader, device.client)]
        changed = await device.client.patch(url, json=secret)
        assert changed.is_success, changed.text
        after = [(await each.get(url)).headers["etag"] for each in (reader, device.client)]
        assert after[0] == before[0], path
        assert after[1] == changed.headers["etag"] != before[1], path


async def test_an_empty_secret_is_shown_as_such(device: Device) -> None:
    await seeded(device)
    reader = device.client_at("192.0.2.10", await token_of(device, "read"))
    lines = (await reader.get("http://device/svc/api/v1/vpn-lines")).json()["data"]
    assert [(line["password"], line["secret"]) for line in lines] == [(MASK, MASK), (MASK, "")]


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        (
            {"server": "a.example", "port": 1, "udp": True, "password": "p", "x": 7},
            {"server": "a.example", "port": 1, "udp": True, "password": MASK, "x": MASK},
        ),
        (
            {"alpn": ["h2"], "list": ["p", {"password": "p"}], "password": ""},
            {"alpn": ["h2"], "list": [MASK, {"password": MASK}], "password": ""},
        ),
        (
            {"server": {"password": "p"}, "dns-servers": ["1.1.1.1"], "none": None},
            {"server": {"password": MASK}, "dns-servers": ["1.1.1.1"], "none": None},
        ),
    ],
)
def test_a_configuration_shows_what_is_known_to_be_no_secret(
    config: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert json.loads(masked_config(json.dumps(config))) == shown


def test_a_configuration_that_cannot_be_read_is_masked_whole() -> None:
    assert masked_config("password: seed") == MASK
