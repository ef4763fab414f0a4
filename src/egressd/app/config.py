"""The configuration file: the settings that are needed before the database can be opened.

It is TOML; every key has a default, and an unknown key is an error. ``EGRESSD_<TABLE>__<KEY>`` in
the environment overrides the file. Everything that an operator changes while the service runs is
kept in the database instead.
"""

from __future__ import annotations

import os
import socket
import tomllib
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from egressd.formats.hosts import parse_domain, parse_host, parse_port
from egressd.model.device import InterfaceRoles
from egressd.model.errors import Invalid
from egressd.model.names import has_control_characters, is_interface_name

DEFAULT_PATH = Path("/etc/egressd/egressd.toml")

_BROADCAST: Final = IPv4Address("255.255.255.255")

_TAKES: Final = {
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "tuple_type": "must be a list in brackets",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "string_type": "must be text in quotes",
    "ip_v4_address": "must be an IPv4 address in quotes",
}
"""Type of pydantic's fault -> the text in place of pydantic's own, which uses Python's words."""


def _interface(name: Any) -> Any:
    if not isinstance(name, str) or not is_interface_name(name):
        raise ValueError("must be the name of an interface")
    return name


def _host(name: str) -> str:
    try:
        return parse_host(name)
    except ValueError:
        raise ValueError("must be a host name") from None


@dataclass(frozen=True)
class ListenAddress:
    """The place that a server listens at: one of this machine's addresses, or all of them, and a
    TCP port.
    """

    address: IPv4Address | IPv6Address
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{host}:{self.port}"

    @property
    def here(self) -> ListenAddress:
        """The endpoint at which this machine itself reaches the server. A server that listens at
        all addresses listens at the loopback address, too.
        """
        if not self.address.is_unspecified:
            return self
        return ListenAddress(
            ip_address("::1" if self.address.version == 6 else "127.0.0.1"), self.port
        )

    @property
    def socket_address(self) -> tuple[Any, ...]:
        """The endpoint as `socket.socket.getsockname` returns it: the kernel writes addresses in
        another way than Python, and gives an interface as a number. Raises OSError.
        """
        found = socket.getaddrinfo(
            str(self.address), self.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
        return found[0][4]

    def bind(self) -> socket.socket:
        """Return a TCP socket that is bound to the endpoint. Raises OSError."""
        family = socket.AF_INET6 if self.address.version == 6 else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(self.socket_address)
        except OSError:
            bound.close()
            raise
        return bound


def _endpoint(text: Any) -> Any:
    try:
        host, port_text = str(text).rsplit(":", 1)
        port = parse_port(port_text)
    except ValueError:
        problem = "must be ADDRESS:PORT, for example 0.0.0.0:8787 or [::]:8787"
        raise ValueError(problem) from None
    try:
        if host.startswith("[") and host.endswith("]"):
            return ListenAddress(IPv6Address(host[1:-1]), port)
        return ListenAddress(IPv4Address(host), port)
    except ValueError:
        raise ValueError("must begin with an IP address; IPv6 in brackets") from None


def _address(given: Any) -> Any:
    if isinstance(given, int):  # pydantic would turn a number into an address
        raise ValueError(_TAKES["ip_v4_address"])  # noqa: TRY004 - what pydantic takes
    return given


def _router6(given: Any) -> Any:
    try:
        address = IPv6Address(given) if isinstance(given, str) else None
    except ValueError:
        address = None
    if address is None or not address.is_link_local or address.scope_id is not None:
        # RFC 4861, 4.2: a router sends its advertisements from such an address.
        raise ValueError("must be a link-local IPv6 address in quotes, such as fe80::1")
    return address


def _text(value: Any) -> Any:
    if not isinstance(value, str) or not value or has_control_characters(value):
        raise ValueError("must be text in quotes, of one line and not empty")
    return value


def _some(servers: tuple[IPv4Address, ...]) -> tuple[IPv4Address, ...]:
    if not servers:
        raise ValueError("must not be empty")
    return servers


InterfaceName = Annotated[str, BeforeValidator(_interface)]
Listen = Annotated[ListenAddress, BeforeValidator(_endpoint)]
Address = Annotated[IPv4Address, BeforeValidator(_address)]
Router6 = Annotated[IPv6Address, BeforeValidator(_router6)]
Servers = Annotated[tuple[Address, ...], AfterValidator(_some)]
User = Annotated[str, BeforeValidator(_text)]
Folder = Annotated[Path, BeforeValidator(_text)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Api(_Table):
    listen: Listen = ListenAddress(IPv4Address(0), 8787)
    """The endpoint for plain HTTP, for LAN clients and platforms: a token guards it."""
    tls_listen: Listen = ListenAddress(IPv4Address(0), 8788)
    """The endpoint for HTTPS."""
    user: User = "egressd"
    """The user that the api runs as when started by root."""


class Data(_Table):
    dir: Folder = Path("/var/lib/egressd")


class Run(_Table):
    dir: Folder = Path("/run/egressd")


class Lan(_Table):
    interfaces: tuple[InterfaceName, ...] = ()
    """LAN interfaces. If empty: the interfaces with a private address that are no WAN."""
    multicast: StrictBool = False
    """True if multicast may reach the LANs that a program on this machine, such as igmpproxy,
    routes it to."""


class Local(_Table):
    interfaces: tuple[InterfaceName, ...] = ()
    """Interfaces of networks that are neither LAN nor WAN, beside those of Docker, Podman, LXC and
    libvirt and of WireGuard servers, which are found automatically."""


class Wan(_Table):
    interfaces: tuple[InterfaceName, ...] = ()
    """WAN interfaces. If empty: the interfaces with a default route."""
    gateways: dict[InterfaceName, Address] = {}
    """WAN without a default route of its own -> its gateway."""
    gateways6: dict[InterfaceName, Router6] = {}
    """Interface that is LAN and WAN at once -> the IPv6 router whose advertisements it accepts."""


def _zones(given: Any) -> Any:
    """Return domain in ASCII -> servers, from one address or a list of addresses for each."""
    if not isinstance(given, dict):
        raise ValueError("must be a table of domains and addresses")  # noqa: TRY004 - see above
    zones: dict[str, list[Any]] = {}
    for name, servers in given.items():
        if "*" in name or name.startswith("."):
            raise ValueError(
                f'"{name}" must be the domain alone: it stands for all names beneath it as well'
            )
        try:
            domain = parse_domain(name)
        except ValueError:
            raise ValueError(f'"{name}" must be a domain name') from None
        if domain in zones:
            raise ValueError(f'"{name}" is there twice')
        zones[domain] = list(servers) if isinstance(servers, list) else [servers]
        if not zones[domain] or not all(map(_is_host, zones[domain])):
            raise ValueError(f'"{name}" must have an IPv4 address in quotes, or a list of some')
    return zones


def _is_host(server: Any) -> bool:
    """True if the address can be queried; `IPv4Address` would accept numbers, too."""
    try:
        address = IPv4Address(server) if isinstance(server, str) else None
    except ValueError:
        return False
    return address is not None and not (
        address.is_unspecified or address.is_multicast or address == _BROADCAST
    )


def _reachable(server: IPv4Address) -> IPv4Address:
    if server.is_loopback:
        raise ValueError(
            "must not be a loopback address, which clients cannot be sent to:"
            " give an address of this machine that its resolver listens at, the LAN's for one"
        )
    return server


class Dns(_Table):
    device: tuple[Annotated[Address, AfterValidator(_reachable)], ...] = ()
    """The device's DNS servers. If empty: the name servers of ``/etc/resolv.conf`` that are not on
    this machine."""
    domestic: Servers = (IPv4Address("223.5.5.5"), IPv4Address("119.29.29.29"))
    outbound: Servers = (IPv4Address("1.1.1.1"), IPv4Address("8.8.8.8"))
    home: Servers = Field(
        default=(IPv4Address("223.5.5.5"), IPv4Address("119.29.29.29")),
        validation_alias="return",
    )
    local: Annotated[dict[str, tuple[IPv4Address, ...]], BeforeValidator(_zones)] = {}
    """Domain whose names are resolved locally -> the servers that are asked."""


def _workers() -> int:
    """Return one worker for each processor that may be used, within 2 to 4: not all targets may be
    in one worker, and each worker takes 38 MB.
    """
    return min(max(len(os.sched_getaffinity(0)), 2), 4)


class Engine(_Table):
    user: User = "egressd-engine"
    workers: int = Field(default_factory=_workers, ge=1, le=64, strict=True)
    """Worker processes that engine instances are spread over."""


class LicenseConfig(_Table):
    mode: Literal["off", "enforced"] = "off"
    public_keys: tuple[str, ...] = ()
    """The vendor's keys, as ``egressd license keygen`` prints them."""


class Console(_Table):
    insecure: StrictBool = False
    """True if the console is served over plain HTTP, too."""
    hosts: tuple[Annotated[str, AfterValidator(_host)], ...] = ()
    """Names by which browsers may call this device, beside its addresses and its own name."""


class Config(_Table):
    """A whole configuration file."""

    api: Api = Api()
    data: Data = Data()
    run: Run = Run()
    lan: Lan = Lan()
    local: Local = Local()
    wan: Wan = Wan()
    dns: Dns = Dns()
    engine: Engine = Engine()
    license: LicenseConfig = LicenseConfig()
    console: Console = Console()

    @property
    def api_data(self) -> Path:
        """The folder of the api's database and token; owned by the api's user."""
        return self.data.dir / "api"

    @property
    def license_file(self) -> Path:
        """The installed license."""
        return self.api_data / "license"

    @property
    def netd_data(self) -> Path:
        """The folder of netd's plan; root only."""
        return self.data.dir / "netd"

    @property
    def netd_socket(self) -> Path:
        """The socket between the api and netd."""
        return self.run.dir / "netd.sock"

    @property
    def own_ports(self) -> dict[int, str]:
        """Port that no proxy service may take -> its purpose."""
        return {
            self.api.listen.port: "the API",
            self.api.tls_listen.port: "the API over HTTPS",
        }

    @property
    def roles(self) -> InterfaceRoles:
        """The roles of interfaces that the file names."""
        return InterfaceRoles(
            lan=self.lan.interfaces,
            wan=self.wan.interfaces,
            local=self.local.interfaces,
            multicast=self.lan.multicast,
            gateways=self.wan.gateways,
            gateways6=self.wan.gateways6,
        )

    @model_validator(mode="after")
    def _one_role(self) -> Self:
        for table in ("lan", "wan"):
            both = set(self.local.interfaces) & set(getattr(self, table).interfaces)
            if both:
                name = min(both)
                raise ValueError(f"local.interfaces: {name} is in {table}.interfaces already")
        return self


def load(path: Path | None) -> Config:
    """Read the file at `path`, by default the one at its usual place. Return the defaults if `path`
    is None and there is no file.

    Raises Invalid with every fault, each naming the key.
    """
    return explained(path)[0]


def explained(path: Path | None) -> tuple[Config, dict[tuple[str, str], str]]:
    """Return what `load` returns, and table and key of each setting that is not the default -> its
    origin: the file or the variable of the environment.
    """
    file = path or DEFAULT_PATH
    document: dict[str, Any] = {}
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        if path is not None or not isinstance(error, FileNotFoundError):
            raise Invalid(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} is not TOML: {error}") from error
    origins = {
        (table, name): str(file)
        for table, keys in document.items()
        if isinstance(keys, dict)
        for name in keys
    }
    for key, text in os.environ.items():
        table, separator, name = key.removeprefix("EGRESSD_").lower().partition("__")
        if key.startswith("EGRESSD_") and separator:
            keys = document.setdefault(table, {})
            if isinstance(keys, dict):  # the validation below reports a value that is no table
                keys[name] = _from_environment(text)
                origins[table, name] = key
    try:
        return Config.model_validate(document), origins
    except ValidationError as error:
        raise Invalid(*(_sentence(fault) for fault in error.errors())) from None


def _from_environment(text: str) -> Any:
    """Return the value as TOML reads it, or the text itself: ``["lan0"]``, ``4``,
    ``/srv/data``.
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _sentence(fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    if not key:  # a sentence about several keys, which it names
        return str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        return f"{key} is not a key of the configuration"
    told = _TAKES.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
    return f"{key}: {told}"
