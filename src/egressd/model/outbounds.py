"""A node's outbound as data: the only options of it that the engine accepts from egressd.

There is one struct a protocol, with the fields that egressd makes use of. None names a file, a
program, a socket option or an interface. `egressd.planner.outbounds` makes them from a node's
configuration, and `egressd.planner.options` makes the engine's own options of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from egressd.model.forms import (
    LINE,
    Address,
    Credential,
    HeaderName,
    Host,
    HostOrNone,
    HttpPath,
    Network,
    Port,
    Text,
)

Fingerprint = Literal[
    "chrome",
    "firefox",
    "edge",
    "safari",
    "360",
    "qq",
    "ios",
    "android",
    "random",
    "randomized",
]
"""The client whose TLS handshake the engine imitates (uTLS)."""
Cipher = Literal[
    "2022-blake3-aes-128-gcm",
    "2022-blake3-aes-256-gcm",
    "2022-blake3-chacha20-poly1305",
    "aes-128-gcm",
    "aes-192-gcm",
    "aes-256-gcm",
    "chacha20-ietf-poly1305",
    "xchacha20-ietf-poly1305",
    "aes-128-ctr",
    "aes-192-ctr",
    "aes-256-ctr",
    "aes-128-cfb",
    "aes-192-cfb",
    "aes-256-cfb",
    "rc4-md5",
    "chacha20-ietf",
    "xchacha20",
    "none",
]
"""A method of Shadowsocks."""
VMessCipher = Literal["auto", "none", "zero", "aes-128-gcm", "chacha20-poly1305"]
CongestionControl = Literal["cubic", "new_reno", "bbr"]
UdpRelayMode = Literal["native", "quic"]
PacketEncoding = Literal["", "xudp", "packetaddr"]
"""The packing of UDP; an empty text is the engine's word for none."""
Strategy = Literal["ipv4_only", "ipv6_only", "prefer_ipv4", "prefer_ipv6"]
"""The kinds of address that a server's name is resolved to (sing-box's domain strategy)."""

Uuid: TypeAlias = Annotated[
    str, Meta(max_length=36, pattern=r"\A[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
]
HostKeyAlgorithm = Literal[
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
    "ssh-rsa",
]
"""A signature algorithm of an SSH server's key."""
KeyLine: TypeAlias = Annotated[str, Meta(max_length=128, pattern=r"\A[A-Za-z0-9+/=:, -]*\Z")]
"""A line of a private key in PEM."""
HostKey: TypeAlias = Annotated[
    str, Meta(max_length=2048, pattern=r"\A[a-z0-9@.-]{1,64} [A-Za-z0-9+/]+={0,2}\Z")
]
"""The type of an SSH server's key, and the key in base64."""
WireGuardKey: TypeAlias = Annotated[str, Meta(max_length=44, pattern=r"\A[A-Za-z0-9+/]{43}=\Z")]
"""A key of 32 bytes in base64."""
Byte: TypeAlias = Annotated[int, Meta(ge=0, le=255)]
_KEY_LINES_MAX = 256
_LIST_MAX = 64
Texts: TypeAlias = Annotated[tuple[Text, ...], Meta(max_length=_LIST_MAX)]
Headers: TypeAlias = Annotated[tuple[tuple[HeaderName, Text], ...], Meta(max_length=_LIST_MAX)]
"""HTTP fields by name. Pairs, because a struct with a dictionary cannot be a dictionary key."""
HeaderLists: TypeAlias = Annotated[tuple[tuple[HeaderName, Texts], ...], Meta(max_length=_LIST_MAX)]
Mbps: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000)]
DaySeconds: TypeAlias = Annotated[int, Meta(ge=0, le=86_400)]


class Part(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A part of the engine's configuration. Its ``repr`` shows the type alone: it holds secrets."""

    def __rich_repr__(self) -> Any:
        yield from ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


# --- TLS and transports. --------------------------------------------------------------------


class Reality(Part, frozen=True, kw_only=True):
    """REALITY's public key, and the short id in hexadecimal digits."""

    public_key: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{43}\Z")]
    short_id: Annotated[str, Meta(pattern=r"\A(?:[0-9a-fA-F]{2}){0,8}\Z")] = ""


class Ech(Part, frozen=True, kw_only=True):
    """Encrypted Client Hello. Without ``config``, an ECHConfigList in base64, the engine asks the
    DNS for one.
    """

    config: Annotated[str, Meta(max_length=4096, pattern=r"\A[A-Za-z0-9+/]*={0,2}\Z")] = ""
    query_server_name: HostOrNone = ""


class Tls(Part, frozen=True, kw_only=True):
    """TLS towards a node's server."""

    server_name: HostOrNone = ""
    """The name in the TLS handshake; empty: the server's own."""
    disable_sni: bool = False
    insecure: bool = False
    alpn: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=255, pattern=LINE)], ...],
        Meta(max_length=_LIST_MAX),
    ] = ()
    fingerprint: Fingerprint | None = None
    reality: Reality | None = None
    ech: Ech | None = None


class WebSocket(Part, frozen=True, kw_only=True, tag="ws"):
    """A stream over WebSocket (RFC 6455)."""

    path: HttpPath = "/"
    headers: Headers = ()
    max_early_data: Annotated[int, Meta(ge=0, le=65535)] = 0
    early_data_header_name: Annotated[str, Meta(max_length=64, pattern=LINE)] = ""


class HttpUpgrade(Part, frozen=True, kw_only=True, tag="httpupgrade"):
    """A stream after an upgrade of HTTP/1.1."""

    path: HttpPath = "/"
    host: Text = ""
    headers: Headers = ()


class Grpc(Part, frozen=True, kw_only=True, tag="grpc"):
    """A stream in gRPC."""

    service_name: Text = ""


class HttpStream(Part, frozen=True, kw_only=True, tag="http"):
    """A stream in an HTTP request: of HTTP/2 within TLS, of HTTP/1.1 without."""

    path: HttpPath = "/"
    host: Texts = ()
    method: Annotated[str, Meta(pattern=r"\A[A-Z]{0,16}\Z")] = ""
    headers: HeaderLists = ()


Transport: TypeAlias = WebSocket | HttpUpgrade | Grpc | HttpStream


# --- One struct a protocol. -----------------------------------------------------------------


class _Server(Part, frozen=True, kw_only=True):
    """The fields of all protocols: the server, and whether UDP is carried."""

    server: Host
    server_port: Port
    udp: bool
    strategy: Strategy = "ipv4_only"


class Socks5(_Server, frozen=True, kw_only=True, tag="socks5"):
    """SOCKS5 (RFC 1928)."""

    username: Credential = ""
    password: Credential = ""


class HttpProxy(_Server, frozen=True, kw_only=True, tag="http"):
    """An HTTP proxy, asked with CONNECT."""

    udp: Literal[False] = False
    username: Credential = ""
    password: Credential = ""
    tls: Tls | None = None
    headers: Headers = ()


class Obfs(Part, frozen=True, kw_only=True, tag="obfs"):
    """simple-obfs, a plugin of Shadowsocks."""

    mode: Literal["http", "tls"]
    host: Host


class V2rayPlugin(Part, frozen=True, kw_only=True, tag="v2ray-plugin"):
    """v2ray-plugin, a plugin of Shadowsocks, over WebSocket."""

    host: Host
    path: HttpPath = "/"
    mux: bool = True
    tls: bool = False


class ShadowTls(Part, frozen=True, kw_only=True, tag="shadow-tls"):
    """ShadowTLS, beneath Shadowsocks: the handshake is that of ``host``. It carries TCP alone."""

    version: Literal[1, 2, 3]
    password: Text = ""
    host: Host
    alpn: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=255, pattern=LINE)], ...],
        Meta(max_length=_LIST_MAX),
    ] = ()
    fingerprint: Fingerprint | None = None


class Shadowsocks(_Server, frozen=True, kw_only=True, tag="ss"):
    """Shadowsocks. ``udp_over_tcp`` is the version of UDP over TCP, 0 for none."""

    method: Cipher
    password: Text
    plugin: Obfs | V2rayPlugin | ShadowTls | None = None
    udp_over_tcp: Literal[0, 1, 2] = 0


class VMess(_Server, frozen=True, kw_only=True, tag="vmess"):
    """VMess."""

    uuid: Uuid
    alter_id: Annotated[int, Meta(ge=0, le=65535)] = 0
    security: VMessCipher = "auto"
    packet_encoding: PacketEncoding = "xudp"
    global_padding: bool = False
    authenticated_length: bool = False
    tls: Tls | None = None
    transport: Transport | None = None


class VLess(_Server, frozen=True, kw_only=True, tag="vless"):
    """VLESS."""

    uuid: Uuid
    flow: Literal["", "xtls-rprx-vision"] = ""
    packet_encoding: PacketEncoding = "xudp"
    tls: Tls | None = None
    transport: Transport | None = None


class Trojan(_Server, frozen=True, kw_only=True, tag="trojan"):
    """Trojan."""

    password: Text
    tls: Tls
    transport: Transport | None = None


class Hysteria2(_Server, frozen=True, kw_only=True, tag="hysteria2"):
    """Hysteria 2. It hops among ``server_ports``, ranges with both ends, if there are any."""

    server_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    server_ports: Annotated[tuple[tuple[Port, Port], ...], Meta(max_length=_LIST_MAX)] = ()
    hop_interval_s: Annotated[int, Meta(ge=0, le=3600)] = 0
    """Seconds between hops. 0 stands for the engine's default, as in all fields below."""
    hop_interval_max_s: Annotated[int, Meta(ge=0, le=3600)] = 0
    """Seconds between hops at most: with it each interval is drawn between the two."""
    password: Text = ""
    salamander: Text = ""
    """The password of the Salamander obfuscation; empty: none."""
    up_mbps: Mbps = 0
    down_mbps: Mbps = 0
    tls: Tls


class Hysteria(_Server, frozen=True, kw_only=True, tag="hysteria"):
    """Hysteria 1, which sends at ``up_mbps`` whatever is lost. Ports are those of `Hysteria2`."""

    server_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    server_ports: Annotated[tuple[tuple[Port, Port], ...], Meta(max_length=_LIST_MAX)] = ()
    hop_interval_s: Annotated[int, Meta(ge=0, le=3600)] = 0
    password: Text = ""
    obfs: Text = ""
    """The password of the XPlus obfuscation; empty: none."""
    up_mbps: Annotated[int, Meta(ge=1, le=1_000_000)]
    down_mbps: Annotated[int, Meta(ge=1, le=1_000_000)]
    tls: Tls


class Tuic(_Server, frozen=True, kw_only=True, tag="tuic"):
    """TUIC, version 5."""

    uuid: Uuid
    password: Text
    congestion_control: CongestionControl | None = None
    udp_relay_mode: UdpRelayMode | None = None
    udp_over_stream: bool = False
    zero_rtt_handshake: bool = False
    heartbeat_ms: Annotated[int, Meta(ge=0, le=600_000)] = 0
    tls: Tls


class AnyTls(_Server, frozen=True, kw_only=True, tag="anytls"):
    """AnyTLS. Seconds of 0 stand for the engine's defaults."""

    password: Text
    idle_session_check_interval_s: DaySeconds = 0
    idle_session_timeout_s: DaySeconds = 0
    min_idle_session: Annotated[int, Meta(ge=0, le=1024)] = 0
    tls: Tls


class Ssh(_Server, frozen=True, kw_only=True, tag="ssh"):
    """SSH, whose server opens the connections. It carries no UDP.

    Without a ``username`` it is root. ``host_keys`` are the server's, as in known_hosts(5) without
    names; with none, each server is believed.
    """

    udp: Literal[False] = False
    username: Credential = ""
    password: Text = ""
    private_key: Annotated[tuple[KeyLine, ...], Meta(max_length=_KEY_LINES_MAX)] = ()
    passphrase: Text = ""
    host_keys: Annotated[tuple[HostKey, ...], Meta(max_length=_LIST_MAX)] = ()
    host_key_algorithms: Annotated[tuple[HostKeyAlgorithm, ...], Meta(max_length=_LIST_MAX)] = ()


class WireGuard(_Server, frozen=True, kw_only=True, tag="wireguard"):
    """WireGuard, whose other end forwards to ``allowed_ips`` what comes from ``address``.

    It is a packet tunnel: the engine has a TCP/IP stack of its own in it, and the system none.
    """

    private_key: WireGuardKey
    public_key: WireGuardKey
    pre_shared_key: WireGuardKey | Literal[""] = ""
    address: Address
    allowed_ips: Annotated[tuple[Network, ...], Meta(min_length=1, max_length=_LIST_MAX)]
    reserved: Annotated[tuple[Byte, ...], Meta(max_length=3)] = ()
    """Three bytes of each packet's header, which some servers expect; none stand for zeros."""
    mtu: Annotated[int, Meta(ge=576, le=9000)] = 1408
    """Bytes of a packet within the tunnel at most."""
    keepalive_s: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Seconds between packets that keep a way to this end open; 0 for none."""


Outbound: TypeAlias = (
    Socks5
    | HttpProxy
    | Shadowsocks
    | VMess
    | VLess
    | Trojan
    | Hysteria
    | Hysteria2
    | Tuic
    | AnyTls
    | Ssh
    | WireGuard
)
