"""Share links as v2rayN and mihomo read them, written from the forms that they document.

v2rayN: https://github.com/2dust/v2rayN/wiki (its JSON, "ver-2") and Xray's proposal,
https://github.com/XTLS/Xray-core/discussions/716, which both follow; mihomo's provider of links:
https://wiki.metacubex.one/en/config/proxy-providers/content/. Each reader returns the fields of a
node that the program knows, under Clash's names, without empty values.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit


def parts_of(link: str) -> tuple[SplitResult, dict[str, str]]:
    url = urlsplit(link)
    return url, dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))


def server_of(url: SplitResult) -> dict[str, Any]:
    return {"server": url.hostname, "port": url.port}


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, "", [], {}, False)}


def unpadded(text: str) -> str:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def secure(query: Mapping[str, str], insecure: str) -> dict[str, Any]:
    """Return TLS settings in the form of Xray's proposal."""
    return {
        "servername": query.get("sni"),
        "alpn": query["alpn"].split(",") if query.get("alpn") else None,
        "client-fingerprint": query.get("fp"),
        "skip-cert-verify": query.get(insecure) == "1",
        "reality-opts": given({"public-key": query.get("pbk"), "short-id": query.get("sid")}),
        "tls": query.get("security") in ("tls", "reality"),
    }


def websocket(path: str, host: str, *, early: bool) -> dict[str, Any]:
    """Return a WebSocket's options; a path can request early data, as Xray's does."""
    asked = re.search(r"[?&]ed=([0-9]+)\Z", path) if early else None
    options: dict[str, Any] = {"path": path, "headers": given({"Host": host})}
    if asked:
        options |= {
            "path": path[: asked.start()],
            "max-early-data": int(asked[1]),
            "early-data-header-name": "Sec-WebSocket-Protocol",
        }
    return given(options)


def transport(query: Mapping[str, str]) -> dict[str, Any]:
    path, host = query.get("path", ""), query.get("host", "")
    match query.get("type", "tcp"), query.get("headerType", "none"):
        case "tcp", "http":
            headers = given({"Host": host.split(",") if host else None})
            options = given({"path": path.split(","), "headers": headers})
            return {"network": "http", "http-opts": options}
        case "tcp" | "raw", _:
            return {}
        case "ws" | "httpupgrade" as network, _:
            return {
                "network": network,
                "ws-opts": websocket(path, host, early=network == "ws"),
            }
        case "http", _:
            options = {"path": path, "host": host.split(",") if host else None}
            return {"network": "h2", "h2-opts": given(options)}
        case "grpc", _:
            name = query.get("serviceName", "")
            return {"network": "grpc", "grpc-opts": given({"grpc-service-name": name})}
    raise AssertionError(query)


def vless(link: str) -> dict[str, Any]:
    """Return a node as both programs read it, by Xray's proposal."""
    url, query = parts_of(link)
    packets = {"none": "none", "packet": "packetaddr"}.get(query.get("packetEncoding", ""), "xudp")
    return given(
        server_of(url)
        | {"uuid": unquote(url.username or ""), "flow": query.get("flow")}
        | {"encryption": query["encryption"], "packet-encoding": packets}
        | secure(query, "allowInsecure")
        | transport(query)
    )


def trojan(link: str) -> dict[str, Any]:
    url, query = parts_of(link)
    found = server_of(url) | {"password": unquote(url.username or "")}
    found |= secure(query, "allowInsecure") | transport(query)
    return given({key: value for key, value in found.items() if key != "tls"})


def vmess(link: str) -> dict[str, Any]:
    """Return a node of v2rayN's JSON, in which all values are texts."""
    document = json.loads(b64decode(link.removeprefix("vmess://"), validate=True))
    texts = ("v", "ps", "add", "port", "id", "aid", "scy", "net", "type", "host", "path", "tls")
    assert all(isinstance(document[key], str) for key in texts)
    assert document["v"] == "2"
    query = {**document, "security": document["tls"], "headerType": document["type"]}
    query["type"] = document["net"].replace("h2", "http")
    if document["net"] == "grpc":
        query["serviceName"] = document["path"]
    return given(
        {
            "server": document["add"],
            "port": int(document["port"]),
            "uuid": document["id"],
            "alterId": int(document["aid"]),
            "cipher": document["scy"],
            **secure(query, "insecure"),
            **transport(query),
        }
    )


def ss(link: str) -> dict[str, Any]:
    url, query = parts_of(link)
    if url.password is not None:
        cipher, password = unquote(url.username or ""), unquote(url.password)
    else:
        cipher, _, password = unpadded(url.username or "").partition(":")
    found = server_of(url) | {"cipher": cipher, "password": password}
    if plugin := query.get("plugin"):
        name, *options = re.findall(r"((?:[^\\;]|\\.)+)", plugin)
        pairs = {}
        for option in options:
            key, _, value = option.partition("=")
            pairs[key] = re.sub(r"\\(.)", r"\1", value)  # SIP003's escapes
        if name == "shadow-tls":
            alpn = pairs["alpn"].split(",") if "alpn" in pairs else None
            layer: dict[str, Any] = {"version": int(pairs["version"]), "alpn": alpn}
            layer |= {key: pairs[key] for key in ("host", "password")}
            found |= {"plugin": name, "plugin-opts": given(layer)}
        elif name == "obfs-local":
            shown = {"mode": pairs["obfs"], "host": pairs.get("obfs-host")}
            found |= {"plugin": "obfs", "plugin-opts": given(shown)}
        else:
            shown = {key: pairs.get(key) for key in ("mode", "host", "path")}
            found |= {
                "plugin": name,
                "plugin-opts": given({**shown, "tls": "tls" in pairs}),
            }
    found["client-fingerprint"] = query.get("fp")
    if query.get("uot") == "1":
        found |= {"udp-over-tcp": True}
    return given(found)


def hysteria(link: str) -> dict[str, Any]:
    """Return a node by https://hysteria.network/docs/uri-scheme/, as mihomo reads it."""
    url, query = parts_of(link)
    assert query.get("obfs", "xplus") == "xplus"
    found = server_of(url) | {
        "auth-str": query.get("auth"),
        "obfs": query.get("obfsParam"),
        "up": query["upmbps"],
        "down": query["downmbps"],
        "servername": query.get("peer"),
        "alpn": query["alpn"].split(",") if query.get("alpn") else None,
        "skip-cert-verify": query.get("insecure") == "1",
        "ports": query.get("mport"),
    }
    return given(found)


def hysteria2(link: str) -> dict[str, Any]:
    url, query = parts_of(link)
    found = server_of(url) | {
        "password": unquote(url.username or ""),
        "servername": query.get("sni"),
        "alpn": query["alpn"].split(",") if query.get("alpn") else None,
        "skip-cert-verify": query.get("insecure") == "1",
        "obfs": query.get("obfs"),
        "obfs-password": query.get("obfs-password"),
        "ports": query.get("mport"),
        "up": query.get("up"),
        "down": query.get("down"),
    }
    return given(found)


def tuic(link: str) -> dict[str, Any]:
    url, query = parts_of(link)
    found = server_of(url) | {
        "uuid": url.username,
        "password": unquote(url.password or ""),
        "servername": query.get("sni"),
        "alpn": query["alpn"].split(",") if query.get("alpn") else None,
        "skip-cert-verify": query.get("allow_insecure") == "1",
        "congestion-controller": query.get("congestion_control"),
        "udp-relay-mode": query.get("udp_relay_mode"),
        "disable-sni": query.get("disable_sni") == "1",
    }
    return given(found)


def anytls(link: str) -> dict[str, Any]:
    url, query = parts_of(link)
    found = server_of(url) | {"password": unquote(url.username or "")} | secure(query, "insecure")
    return given({key: value for key, value in found.items() if key != "tls"})


def ssh(link: str) -> dict[str, Any]:
    """Return a node as Hiddify reads it (https://github.com/hiddify/ray2sing)."""
    url, query = parts_of(link)
    found = server_of(url) | {
        "username": unquote(url.username or ""),
        "password": unquote(url.password or ""),
        "host-key": query["hk"].split(",") if "hk" in query else None,
    }
    if "pk" in query:
        lines = [query["pk"][at : at + 64] for at in range(0, len(query["pk"]), 64)]
        begin, end = (f"-----{word} OPENSSH PRIVATE KEY-----" for word in ("BEGIN", "END"))
        found["private-key"] = [begin, *lines, end]
    return given(found)


def wireguard(link: str) -> dict[str, Any]:
    """Return a node as v2rayN reads it."""
    url, query = parts_of(link)
    found = server_of(url) | {
        "private-key": unquote(url.username or ""),
        "public-key": query["publickey"],
        "pre-shared-key": query.get("presharedkey"),
        "ip": query["address"].removesuffix("/32"),
        "reserved": [int(n) for n in query["reserved"].split(",")] if "reserved" in query else None,
        "mtu": int(query["mtu"]) if "mtu" in query else None,
    }
    return given(found)


def socks5(link: str) -> dict[str, Any]:
    url, _ = parts_of(link)
    names = {"username": unquote(url.username or ""), "password": unquote(url.password or "")}
    return given(server_of(url) | names)


def http(link: str) -> dict[str, Any]:
    """Return a node of an HTTP proxy; its link has no form but the address itself."""
    return socks5(link) | ({"tls": True} if link.startswith("https:") else {})


READERS = {
    "vless": vless,
    "trojan": trojan,
    "vmess": vmess,
    "ss": ss,
    "hysteria": hysteria,
    "hysteria2": hysteria2,
    "tuic": tuic,
    "anytls": anytls,
    "ssh": ssh,
    "wireguard": wireguard,
    "socks5": socks5,
    "http": http,
}
