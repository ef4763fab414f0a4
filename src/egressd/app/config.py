"""The configuration file: the settings that are needed before the database can be opened.

It is TOML; every key has a default, and an unknown key is an error. ``EGRESSD_<TABLE>__<KEY>`` in
the environment overrides the file. Everything that an operator changes while the service runs is
kept in the database instead.
"""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Final, Literal, get_args

from egressd.app import toml_values as toml
from egressd.app.listen_address import ListenAddress
from egressd.app.pair_section import PairSection
from egressd.app.toml_values import reads
from egressd.formats.hosts import parse_domain, parse_host, parse_port
from egressd.model.device import InterfaceRoles
from egressd.model.errors import Invalid
from egressd.model.exits import EXIT_URL
from egressd.model.names import LineType, has_control_characters

DEFAULT_PATH = Path("/etc/egressd/egressd.toml")

Mode = Literal["off", "enforced"]

EXIT_INTERVAL_MIN_S: Final = 60
"""Seconds between two requests by one target, at least."""
_BROADCAST: Final = IPv4Address("255.255.255.255")
_LINES: Final = tuple(f"{each}_" for each in get_args(LineType))
"""The beginnings of VPN lines' names."""


def _host(given: Any) -> str:
    name = toml.text(given)
    try:
        return parse_host(name)
    except ValueError:
        raise ValueError("must be a host name") from None


def _endpoint(text: Any) -> ListenAddress:
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


def _router6(given: Any) -> IPv6Address:
    try:
        address = IPv6Address(given) if isinstance(given, str) else None
    except ValueError:
        address = None
    if address is None or not address.is_link_local or address.scope_id is not None:
        # RFC 4861, 4.2: a router sends its advertisements from such an address.
        raise ValueError("must be a link-local IPv6 address in quotes, such as fe80::1")
    return address


def _source(given: Any) -> IPv4Address:
    """Read an address that far ends can answer to."""
    address = toml.address(given)
    if address.is_loopback or not _is_host(address):
        raise ValueError("must be an address that far ends can answer to")
    return address


def _line(value: Any) -> str:
    if not isinstance(value, str) or not value or has_control_characters(value):
        raise ValueError("must be text in quotes, of one line and not empty")
    return value


def _line_or_empty(value: Any) -> str:
    return "" if value == "" else _line(value)


def _folder(value: Any) -> Path:
    return Path(_line(value))


def _servers(given: Any) -> tuple[IPv4Address, ...]:
    servers = toml.listed(toml.address)(given)
    if not servers:
        raise ValueError("must not be empty")
    return servers


_interfaces: Final = toml.listed(toml.interface)


@dataclass(frozen=True)
class Api:
    listen: ListenAddress = field(
        default=ListenAddress(IPv4Address(0), 8787), metadata=reads(_endpoint)
    )
    """The endpoint for plain HTTP, for LAN clients and platforms: a token guards it."""
    tls_listen: ListenAddress = field(
        default=ListenAddress(IPv4Address(0), 8788), metadata=reads(_endpoint)
    )
    """The endpoint for HTTPS."""
    user: str = field(default="egressd", metadata=reads(_line))
    """The user that the api runs as when started by root."""


@dataclass(frozen=True)
class Data:
    dir: Path = field(default=Path("/var/lib/egressd"), metadata=reads(_folder))


@dataclass(frozen=True)
class Run:
    dir: Path = field(default=Path("/run/egressd"), metadata=reads(_folder))


@dataclass(frozen=True)
class Lan:
    interfaces: tuple[str, ...] = field(default=(), metadata=reads(_interfaces))
    """LAN interfaces. If empty: the interfaces with a private address that are no WAN."""
    multicast: bool = field(default=False, metadata=reads(toml.switch))
    """True if multicast may reach the LANs that a program on this machine, such as igmpproxy,
    routes it to."""


@dataclass(frozen=True)
class Local:
    interfaces: tuple[str, ...] = field(default=(), metadata=reads(_interfaces))
    """Interfaces of networks that are neither LAN nor WAN, beside those of Docker, Podman, LXC and
    libvirt and of WireGuard servers, which are found automatically."""


@dataclass(frozen=True)
class Wan:
    interfaces: tuple[str, ...] = field(default=(), metadata=reads(_interfaces))
    """WAN interfaces. If empty: the interfaces with a default route."""
    gateways: dict[str, IPv4Address] = field(
        default_factory=dict, metadata=reads(toml.mapped(toml.interface, toml.address))
    )
    """WAN without a default route of its own -> its gateway."""
    sources: dict[str, IPv4Address] = field(
        default_factory=dict, metadata=reads(toml.mapped(toml.interface, _source))
    )
    """WAN -> the address that clients' packets get there while the WAN has it."""
    gateways6: dict[str, IPv6Address] = field(
        default_factory=dict, metadata=reads(toml.mapped(toml.interface, _router6))
    )
    """Interface that is LAN and WAN at once -> the IPv6 router whose advertisements it accepts."""


def _zones(given: Any) -> dict[str, tuple[IPv4Address, ...]]:
    """Return domain in ASCII -> servers, from one address or a list of addresses for each."""
    if not isinstance(given, dict):
        raise ValueError("must be a table of domains and addresses")  # noqa: TRY004 - see `toml`
    zones: dict[str, tuple[IPv4Address, ...]] = {}
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
        try:
            zones[domain] = tuple(map(_host_address, servers if _is_list(servers) else [servers]))
        except ValueError:
            zones[domain] = ()
        if not zones[domain]:
            raise ValueError(f'"{name}" must have an IPv4 address in quotes, or a list of some')
    return zones


def _is_list(given: Any) -> bool:
    return isinstance(given, list | tuple)


def _host_address(given: Any) -> IPv4Address:
    """Read an address that can be queried."""
    address = toml.address(given)
    if not _is_host(address):
        raise ValueError("must be the address of a host")
    return address


def _is_host(address: IPv4Address) -> bool:
    return not (address.is_unspecified or address.is_multicast or address == _BROADCAST)


def _reachable(given: Any) -> IPv4Address:
    server = toml.address(given)
    if server.is_loopback:
        raise ValueError(
            "must not be a loopback address, which clients cannot be sent to:"
            " give an address of this machine that its resolver listens at, the LAN's for one"
        )
    return server


@dataclass(frozen=True)
class Dns:
    device: tuple[IPv4Address, ...] = field(default=(), metadata=reads(toml.listed(_reachable)))
    """The device's DNS servers. If empty: the name servers of ``/etc/resolv.conf`` that are not on
    this machine."""
    domestic: tuple[IPv4Address, ...] = field(
        default=(IPv4Address("223.5.5.5"), IPv4Address("119.29.29.29")), metadata=reads(_servers)
    )
    outbound: tuple[IPv4Address, ...] = field(
        default=(IPv4Address("1.1.1.1"), IPv4Address("8.8.8.8")), metadata=reads(_servers)
    )
    home: tuple[IPv4Address, ...] = field(
        default=(IPv4Address("223.5.5.5"), IPv4Address("119.29.29.29")),
        metadata=reads(_servers, key="return"),
    )
    local: dict[str, tuple[IPv4Address, ...]] = field(default_factory=dict, metadata=reads(_zones))
    """Domain whose names are resolved locally -> the servers that are asked."""


def _workers() -> int:
    """Return one worker for each processor that may be used, within 2 to 4: many targets must not
    be in one worker, and each worker takes 38 MB.
    """
    return min(max(len(os.sched_getaffinity(0)), 2), 4)


@dataclass(frozen=True)
class Engine:
    user: str = field(default="egressd-engine", metadata=reads(_line))
    workers: int = field(default_factory=_workers, metadata=reads(toml.number(1, 64)))
    """Worker processes that engine instances are spread over, at most: one for each 16 instances is
    started."""


@dataclass(frozen=True)
class AlertsConfig:
    user: str = field(default="egressd-alerts", metadata=reads(_line))
    """The user that the processes run as which send alerts."""


@dataclass(frozen=True)
class LicenseConfig:
    mode: Mode = field(default="off", metadata=reads(toml.choice(*get_args(Mode))))
    public_keys: tuple[str, ...] = field(default=(), metadata=reads(toml.listed(toml.text)))
    """The vendor's keys, as ``egressd license keygen`` prints them."""


@dataclass(frozen=True)
class Console:
    insecure: bool = field(default=False, metadata=reads(toml.switch))
    """True if the console is served over plain HTTP, too."""
    hosts: tuple[str, ...] = field(default=(), metadata=reads(toml.listed(_host)))
    """Names by which browsers may call this device, beside its addresses and its own name."""


@dataclass(frozen=True)
class Cluster:
    database: str = field(default="", metadata=reads(_line_or_empty))
    """Connection string of the PostgreSQL database that holds the configuration (libpq's
    documentation, 34.1.1). If empty: the configuration is in a file of this box's own."""
    site: str = field(default="", metadata=reads(_line_or_empty))
    """The site whose configuration this box has in common with the site's other boxes."""
    member: str = field(default_factory=socket.gethostname, metadata=reads(_line))
    """This box's name in the site."""


def _page(given: Any) -> str:
    from egressd.service import checks  # what few configurations need

    if [*checks.url("url", address := toml.text(given))]:
        raise ValueError("must be an http or https URL in quotes, without a user name")
    return address


def _interval(given: Any) -> int:
    seconds = toml.number(0, 86_400)(given)
    if 0 < seconds < EXIT_INTERVAL_MIN_S:
        raise ValueError(f"must be 0, for never, or {EXIT_INTERVAL_MIN_S} to 86400")
    return seconds


@dataclass(frozen=True)
class ExitChecks:
    url: str = field(default=EXIT_URL, metadata=reads(_page))
    """The page that says where it is asked from."""
    check_interval_s: int = field(default=900, metadata=reads(_interval))
    """Seconds between two requests by one target in use; 0 if none is asked."""


@dataclass(frozen=True)
class Config:
    """A whole configuration file."""

    api: Api = field(default=Api(), metadata=reads(toml.table(Api)))
    data: Data = field(default=Data(), metadata=reads(toml.table(Data)))
    run: Run = field(default=Run(), metadata=reads(toml.table(Run)))
    lan: Lan = field(default=Lan(), metadata=reads(toml.table(Lan)))
    local: Local = field(default=Local(), metadata=reads(toml.table(Local)))
    wan: Wan = field(default_factory=Wan, metadata=reads(toml.table(Wan)))
    dns: Dns = field(default_factory=Dns, metadata=reads(toml.table(Dns)))
    engine: Engine = field(default_factory=Engine, metadata=reads(toml.table(Engine)))
    license: LicenseConfig = field(
        default=LicenseConfig(), metadata=reads(toml.table(LicenseConfig))
    )
    console: Console = field(default=Console(), metadata=reads(toml.table(Console)))
    cluster: Cluster = field(default_factory=Cluster, metadata=reads(toml.table(Cluster)))
    pair: PairSection = field(default_factory=PairSection, metadata=reads(toml.table(PairSection)))
    exits: ExitChecks = field(default=ExitChecks(), metadata=reads(toml.table(ExitChecks)))
    alerts: AlertsConfig = field(default=AlertsConfig(), metadata=reads(toml.table(AlertsConfig)))

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
    def pair_folder(self) -> Path:
        """The folder of the daemons of a pair; root only."""
        return self.run.dir / "pair"

    @property
    def sysctl_record(self) -> Path:
        """The values that kernel parameters had before netd changed them."""
        return self.netd_data / "sysctls"

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
            sources=self.wan.sources,
            shared=self.pair.sources(self.wan.interfaces),
            gateways6=self.wan.gateways6,
        )


def read(document: Mapping[str, Any]) -> Config:
    """Return the configuration of a TOML document. Raises Invalid with every fault."""
    try:
        settings = toml.table(Config)(document)
        for name in ("lan", "wan"):
            both = {*settings.local.interfaces} & {*getattr(settings, name).interfaces}
            if both:
                raise Invalid(f"local.interfaces: {min(both)} is in {name}.interfaces already")
        pair_problems = settings.pair.faults(
            settings.lan.interfaces, settings.wan.interfaces, has_site=bool(settings.cluster.site)
        )
        if problems := [*_source_problems(settings), *pair_problems]:
            raise Invalid(*problems)
        if bool(settings.cluster.database) != bool(settings.cluster.site):
            raise Invalid("cluster.database and cluster.site: must both be set, or neither")
    except toml.Faults as faults:
        raise Invalid(*toml.sentences(faults)) from None
    return settings


def _source_problems(settings: Config) -> Iterator[str]:
    """Yield the faults of ``[wan] sources`` that concern several keys."""
    holders: dict[IPv4Address, str] = {}
    for name, address in settings.wan.sources.items():
        if name.startswith(_LINES):
            yield f"wan.sources: {name} is a VPN line, whose address its server gives it"
        if name in settings.pair.shared:
            yield f"wan.sources: {name} has an address in pair.shared already"
        if name in settings.local.interfaces:
            yield f"wan.sources: {name} is in local.interfaces, and so no WAN"
        if address in holders:
            yield f"wan.sources: {holders[address]} and {name} have the same address {address}"
        holders[address] = name


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
    return read(document), origins


def _from_environment(text: str) -> Any:
    """Return the value as TOML reads it, or the text itself: ``["lan0"]``, ``4``,
    ``/srv/data``.
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
