"""The keys of Clash entries as programs spell them, mapped to the keys in the tables of `entries`.

mihomo takes ``skip_cert_verify`` and ``ServerName`` for ``skip-cert-verify`` and ``servername``;
panels write keys of older Clash versions, of Stash, or of their own. Only `normalised` maps them.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

from egressd.formats.entries import PROTOCOLS
from egressd.formats.fields import Table, fold
from egressd.formats.scalars import Scalar, is_absent, is_off, is_same, text_of
from egressd.model.faults import Fault, fault


class Normal:
    """An entry with the tables' keys and unchanged values.

    ``idle`` lists the keys that were left out because they have no effect beside the others.
    """

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.problems: list[Fault] = []
        self.idle: list[str] = []
        self._given_as: dict[str, str] = {}
        """Path of a field -> its path as the entry spells it."""

    def put(
        self, made: dict[str, Any], key: str, value: Any, *, given_as: str, place: str = ""
    ) -> None:
        """Set `key` of `made`, the object at `place`, to a value that stood at `given_as`.

        If `key` has a value already, both values must be the same.
        """
        path = place + key
        if key not in made or is_absent(made[key]):
            made[key] = value
            self._given_as[path] = given_as
        elif not is_absent(value) and not is_same(made[key], value):
            other = self._given_as.get(path, path)
            self.problems.append(fault(given_as, "differs", other=other))


def normalised(protocol: str, given: Mapping[str, Any]) -> Normal:
    """Return the entry `given` with the keys of the table of `protocol`.

    Values may be `Scalar`. If two keys mean the same field, their values must be the same.
    """
    made = Normal()
    made.fields = _renamed(
        PROTOCOLS[protocol].table, given, "", made, _OTHER_NAMES.get(protocol, {})
    )
    for mend in _MENDS[protocol]:
        mend(made)
    return made


def _renamed(
    table: Table,
    given: Mapping[str, Any],
    place: str,
    into: Normal,
    others: Mapping[str, str] = {},
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    keys = table.keys
    for key, value in given.items():
        name = key
        if key not in keys:
            folded = fold(key)
            name = table.folded.get(folded) or others.get(place + folded) or key
        kind = keys.get(name)
        if isinstance(kind, Table) and isinstance(value, dict):
            value = _renamed(kind, value, f"{place}{name}.", into, others)  # noqa: PLW2901
        into.put(made, name, value, given_as=place + key, place=place)
    return made


def protocol_of(kind: str) -> str:
    """Return the protocol that an entry's ``type`` names, or the word itself if it names none."""
    word = kind.lower()
    return _OTHER_TYPES.get(word, word)


_OTHER_TYPES: Final = {
    "socks": "socks5",
    "shadowsocks": "ss",
    "hy2": "hysteria2",
    "wg": "wireguard",
}


# --- Fields under other keys, by protocol. ----------------------------------------------------


def _move(made: Normal, key: str, table: str, name: str) -> None:
    """Move the value of `key` into the object under `table`, as `name`."""
    value = made.fields.pop(key, None)
    if is_absent(value):
        return
    options = made.fields.get(table)
    options = dict(options) if isinstance(options, dict) else {}
    made.put(options, name, value, given_as=key, place=f"{table}.")
    made.fields[table] = options


def _websocket_keys(made: Normal) -> None:
    _move(made, "ws-path", "ws-opts", "path")
    _move(made, "ws-headers", "ws-opts", "headers")


def _grpc_key(made: Normal) -> None:
    _move(made, "grpc-service-name", "grpc-opts", "grpc-service-name")


def _no_header_of_tcp(made: Normal) -> None:
    """Refuse Xray's HTTP header for plain TCP, which makes TCP look like HTTP."""
    if text_of(made.fields.get("network")).lower() not in _PLAIN:
        return
    for key in [key for key in made.fields if fold(key) in ("tcpopts", "rawopts")]:
        options = made.fields[key]
        if isinstance(options, dict) and not is_off(options.get("header")):
            made.problems.append(
                fault(f"{key}.header", "not-given", reason="write it as network http")
            )


_PLAIN: Final = ("", "tcp", "raw", "none")


def _upgrade_options(made: Normal) -> None:
    """Move the options of HTTP upgrade from their own key, which 3x-ui writes, to ``ws-opts``."""
    fields = made.fields
    options = fields.get("http-upgrade-opts")
    if not isinstance(options, dict) or text_of(fields.get("network")).lower() != "httpupgrade":
        return
    del fields["http-upgrade-opts"]
    table = PROTOCOLS["vless"].table.keys["ws-opts"]
    assert isinstance(table, Table)
    mine = fields.get("ws-opts")
    both = dict(mine) if isinstance(mine, dict) else {}
    for key, value in _renamed(table, options, "http-upgrade-opts.", made).items():
        made.put(both, key, value, given_as=f"http-upgrade-opts.{key}", place="ws-opts.")
    fields["ws-opts"] = both


def _host_of(options: str) -> Callable[[Normal], None]:
    def mend(made: Normal) -> None:
        """Move a host that stands beside the headers into the header of that name."""
        given = made.fields.get(options)
        if not isinstance(given, dict):
            return
        key = next((key for key in given if fold(key) == "host"), None)
        if key is None:
            return
        rest = {name: value for name, value in given.items() if name != key}
        headers = rest.get("headers")
        headers = dict(headers) if isinstance(headers, dict) else {}
        name = next((name for name in headers if name.lower() == "host"), "Host")
        if not is_absent(given[key]):
            given_as = f"{options}.{key}"
            made.put(headers, name, given[key], given_as=given_as, place=f"{options}.headers.")
            rest["headers"] = headers
        made.fields[options] = rest

    return mend


def _empty_reality(made: Normal) -> None:
    """Remove REALITY options without a key: such an entry is plain TLS."""
    options = made.fields.get("reality-opts")
    if isinstance(options, dict) and is_absent(options.get("public-key")):
        del made.fields["reality-opts"]
        rest = (key for key, value in options.items() if not is_off(value))
        made.idle += [f"reality-opts.{key}" for key in rest]


def _ech_that_is_off(made: Normal) -> None:
    """Remove options of an Encrypted Client Hello that is off, with all of its other fields."""
    options = made.fields.get("ech-opts")
    if isinstance(options, dict) and is_off(options):
        del made.fields["ech-opts"]


def _tls_is_certain(made: Normal) -> None:
    """Remove ``tls``, since TLS is always on: a true value is fine, a false one has no effect."""
    value = made.fields.pop("tls", None)
    if not is_absent(value) and is_off(value):
        made.idle.append("tls")


def _no_tls(made: Normal) -> None:
    if not is_off(made.fields.pop("tls", None)):
        made.problems.append(fault("tls", "no-tls-beneath"))


def _no_network(made: Normal) -> None:
    """Remove ``network``, since there is one transport: an entry may name only that one."""
    word = text_of(made.fields.pop("network", None)).lower()
    if word not in ("", "tcp", "raw", "none", "udp", "tcp,udp"):
        made.problems.append(fault("network", "tcp-only"))


def _drop(made: Normal, *keys: str) -> None:
    """Remove keys, and list those with a value in ``idle``."""
    for key in keys:
        if not is_off(made.fields.pop(key, None)):
            made.idle.append(key)


def _hysteria_obfs(made: Normal) -> None:
    if is_off(made.fields.get("obfs")):
        _drop(made, "obfs", "obfs-password")


def _encoded_password(made: Normal) -> None:
    """Move the password from ``auth``, where it is in base64."""
    given = text_of(made.fields.pop("auth", None))
    if not given:
        return
    try:
        text = b64decode(given, validate=True).decode()
    except ValueError:
        made.problems.append(fault("auth", "base64-text"))
    else:
        made.put(made.fields, "auth-str", text, given_as="auth")


def _ports_in_a_list(made: Normal) -> None:
    ports = made.fields.get("ports")
    if isinstance(ports, list):
        said = (text_of(port) or str(port) for port in ports)
        made.fields["ports"] = ",".join(said)


def _shadowsocks_plugin(made: Normal) -> None:
    """Normalise the plugin: remove an empty one, move simple-obfs options from the keys of early
    Clash versions, and rename SIP003 options to Clash's names.
    """
    fields = made.fields
    if is_off(fields.get("plugin")):
        fields.pop("plugin", None)
        if "plugin-opts" in fields and is_off(fields["plugin-opts"]):
            del fields["plugin-opts"]
    mode = text_of(fields.get("obfs")).lower()
    if mode in ("http", "tls"):
        made.put(fields, "plugin", "obfs", given_as="obfs")
        _move(made, "obfs", "plugin-opts", "mode")
        _move(made, "obfs-host", "plugin-opts", "host")
        _move(made, "obfs-uri", "plugin-opts", "path")
    elif mode in ("", "none", "plain"):
        fields.pop("obfs", None)
        _drop(made, "obfs-host", "obfs-uri")
    else:
        made.problems.append(fault("obfs", "obfs-mode"))
    options = fields.get("plugin-opts")
    if not isinstance(options, dict):
        return
    renamed: dict[str, Any] = {}
    for key, value in options.items():
        name = plugin_field(key)
        headers = value if name == "headers" and isinstance(value, dict) else {}
        if len(headers) == 1 and (host := headers.get("Host")) is not None:
            name, value = "host", host  # noqa: PLW2901
        made.put(renamed, name, value, given_as=f"plugin-opts.{key}", place="plugin-opts.")
    fields["plugin-opts"] = renamed


def plugin_field(option: str) -> str:
    """Return the field of ``plugin-opts`` for an option of a plugin, in any spelling."""
    table = PROTOCOLS["ss"].table.keys["plugin-opts"]
    assert isinstance(table, Table)
    folded = fold(option)
    return _PLUGIN_NAMES.get(folded) or table.folded.get(folded) or option


_PLUGIN_NAMES: Final = {
    "obfs": "mode",
    "obfshost": "host",
    "obfsuri": "path",
    "allowinsecure": "skip-cert-verify",
    "insecure": "skip-cert-verify",
}
"""Plugin options, folded, as simple-obfs (https://github.com/shadowsocks/simple-obfs) and
Shadowrocket spell them -> Clash's names.
"""


def _one_peer(made: Normal) -> None:
    """Move the fields of the only peer of an entry that lists its peers."""
    peers = made.fields.pop("peers", None)
    if is_absent(peers) or peers == []:
        return
    if not isinstance(peers, list) or len(peers) != 1 or not isinstance(peers[0], dict):
        made.problems.append(fault("peers", "one-peer"))
        return
    table = PROTOCOLS["wireguard"].table
    place = "peers[0]."
    for key, value in _renamed(table, peers[0], place, made).items():
        made.put(made.fields, key, value, given_as=f"{place}{key}")


def _version(number: str) -> Callable[[Normal], None]:
    def mend(made: Normal) -> None:
        value = made.fields.pop("version", None)
        said = value.text if isinstance(value, Scalar) else str(value or "")
        if said not in ("", number):
            made.problems.append(fault("version", "word", word=number))

    return mend


_TRANSPORTS: Final = (
    _websocket_keys,
    _grpc_key,
    _no_header_of_tcp,
    _upgrade_options,
    _host_of("ws-opts"),
    _host_of("http-opts"),
    _empty_reality,
    _ech_that_is_off,
)

_V2RAY_NAMES: Final = {
    "grpcservicename": "grpc-service-name",
    "grpc-opts.servicename": "grpc-service-name",
    "wspath": "ws-path",
    "wsheaders": "ws-headers",
    "httpupgradeopts": "http-upgrade-opts",
}
_OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "vmess": _V2RAY_NAMES,
    "vless": _V2RAY_NAMES,
    "trojan": _V2RAY_NAMES,
    "hysteria": {
        "authstring": "auth-str",
        "upspeed": "up",
        "downspeed": "down",
        "upmbps": "up",
        "downmbps": "down",
        "mport": "ports",
        "obfsparam": "obfs",
    },
    "hysteria2": {
        "auth": "password",
        "authstr": "password",
        "upspeed": "up",
        "downspeed": "down",
        "upmbps": "up",
        "downmbps": "down",
        "mport": "ports",
    },
    "tuic": {"congestioncontrol": "congestion-controller"},
    "ss": {"obfshost": "obfs-host", "obfsuri": "obfs-uri"},
    "wireguard": {
        "presharedkey": "pre-shared-key",
        "psk": "pre-shared-key",
        "keepalive": "persistent-keepalive",
        "persistentkeepaliveinterval": "persistent-keepalive",
        "selfip": "ip",
        "selfipv6": "ipv6",
    },
    "ssh": {
        "user": "username",
        "privatekeypassword": "private-key-passphrase",
        "passphrase": "private-key-passphrase",
        "hostkeys": "host-key",
        "hostkeyalgorithm": "host-key-algorithms",
    },
}
"""Folded key (behind the path of its object) -> the table's key for it."""

_MENDS: Final[Mapping[str, tuple[Callable[[Normal], None], ...]]] = {
    "socks5": (_no_network,),
    "http": (_no_network, _empty_reality, _ech_that_is_off),
    "ss": (_no_tls, _no_network, _shadowsocks_plugin),
    "vmess": _TRANSPORTS,
    "vless": _TRANSPORTS,
    "trojan": (_tls_is_certain, *_TRANSPORTS),
    "hysteria": (
        _tls_is_certain,
        _no_network,
        _version("1"),
        _encoded_password,
        _ports_in_a_list,
        _ech_that_is_off,
    ),
    "hysteria2": (
        _tls_is_certain,
        _no_network,
        _version("2"),
        _hysteria_obfs,
        _ports_in_a_list,
        _ech_that_is_off,
    ),
    "tuic": (_tls_is_certain, _no_network, _version("5"), _ech_that_is_off),
    "anytls": (_tls_is_certain, _no_network, _empty_reality, _ech_that_is_off),
    "ssh": (_no_tls, _no_network),
    "wireguard": (_one_peer,),
}
