"""The objects that an operator configures: nodes, lines, rules, the whitelist, proxy services.

A noun holds the accepted values, already normalised; the rules of acceptance live in `service`.
Secrets are kept out of ``repr`` so that no log or traceback shows one.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any, Final, Literal, get_args

import msgspec

from egressd.model.alerts import DEFAULT_ALERTS

GroupStrategy = Literal["urltest", "fallback", "sticky", "spread"]
DEFAULT_STRATEGIES: Final[tuple[GroupStrategy, ...]] = ("urltest", "fallback", "sticky")
"""The strategies of groups without settings of their own."""
GROUP_STRATEGIES: Final[tuple[GroupStrategy, ...]] = get_args(GroupStrategy)
OnSwitch = Literal["keep", "drain", "cut"]
ON_SWITCH: Final[tuple[OnSwitch, ...]] = get_args(OnSwitch)
NodeGone = Literal["keep", "delete"]
NODE_GONE: Final[tuple[NodeGone, ...]] = get_args(NodeGone)
NEVER: Final = -1
"""The `TargetGroup.failback_min` of a group that does not go back by itself."""


class _Secretive(msgspec.Struct, frozen=True, kw_only=True):
    """A struct whose ``repr`` hides the fields named in ``SECRET``."""

    def __rich_repr__(self) -> Any:
        secret: tuple[str, ...] = getattr(self, "SECRET", ())
        for field in self.__struct_fields__:
            value = getattr(self, field)
            yield field, "…" if field in secret and value else value

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


class Node(_Secretive, frozen=True, kw_only=True):
    """An upstream proxy. ``config_json`` is the text as accepted (a JSON object).

    ``change_ip_url`` is a page of the seller's that has the node leave by another address, and
    ``change_ip_via`` the target by which that is asked; if empty, the node itself.
    """

    SECRET = ("config_json", "change_ip_url")

    id: int
    name: str
    protocol: str
    config_json: str
    group: str
    created_at: str
    change_ip_url: str = ""
    change_ip_via: str = ""
    subscription: int = 0
    """The id of the subscription that it comes from; 0 for none."""
    name_there: str = ""
    """Its name in the list of the subscription."""
    gone_at: str = ""
    """The time at which the list had it no longer; empty if it has it. Such a node blocks."""


class Line(_Secretive, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An L2TP or PPTP VPN line. ``name`` is the interface's name in the kernel."""

    SECRET = ("password", "secret")

    id: int
    type: str
    name: str
    server: str
    port: int
    username: str
    password: str
    secret: str = ""
    interface: str = "auto"
    comment: str = ""
    dns_profile: str = "auto"
    dns_servers: tuple[str, ...] = ()
    is_enabled: bool = True


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Binds a client's address, or all of a CIDR's, to a target and to speed limits.

    ``ip`` is normalised: always with its prefix length, ``10.0.0.5/32``. Limits are in Kbps (1,000
    bit/s), 0 means unlimited.

    With ``bound_mac``, the rule of a host belongs to the device with that hardware address, and
    follows it. ``mac`` is an operator's annotation.
    """

    id: int
    ip: str
    mac: str = ""
    bound_mac: str = ""
    comment: str = ""
    is_enabled: bool = True
    target_node: str
    upload_limit_kbps: int = 0
    download_limit_kbps: int = 0
    created_at: str = ""
    updated_at: str = ""

    @property
    def is_host(self) -> bool:
        """True if the rule names one address."""
        return self.ip.endswith("/32")

    @property
    def host(self) -> str:
        """The address without ``/32``, as lists show the rule of a host."""
        return self.ip.removesuffix("/32")

    @property
    def network(self) -> IPv4Network:
        """The addresses the rule covers."""
        return IPv4Network(self.ip)


class ProxyService(_Secretive, frozen=True, kw_only=True):
    """A local socks5/http listener whose traffic leaves by one interface."""

    SECRET = ("password",)

    id: int
    name: str
    outbound_interface: str
    port: int
    username: str = ""
    password: str = ""
    is_enabled: bool = True
    created_at: str = ""


class Whitelist(msgspec.Struct, frozen=True, kw_only=True):
    """Destinations with an egress of their own, for every client with an enabled rule.

    ``domains`` and ``ips`` are kept as the operator wrote them (comma or newline separated) and
    were checked when they were saved.
    """

    domains: str = ""
    ips: str = ""
    node: str = "DIRECT"


class TargetGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a group, and the targets that it has besides the nodes that bear its name.

    The group's members are `members` in their order, then the nodes that bear its name or match
    `filter`, by id. No client of the group leaves by anything else.
    """

    id: int
    name: str
    """The group's name; rules name it ``Group_<name>``."""
    strategy: GroupStrategy | Literal[""] = ""
    """Empty for the device's `Settings.group_strategy`."""
    members: tuple[str, ...] = ()
    """Targets as rules name them. A group among them stands for its own members."""
    weights: dict[str, int] = {}
    """Member -> its part of the clients with ``spread``, 1 if it is missing."""
    filter: str = ""
    """A pattern of RE2's, searched in the names of nodes; empty for none."""
    check_url: str = ""
    """The URL that is fetched through each member; empty for the device's."""
    check_interval_s: int = 10
    """Seconds between checks of a member."""
    tolerance_ms: int = 50
    """With ``urltest``, the milliseconds by which another member must be faster."""
    failback_min: int = 0
    """Minutes for which a better member must have been healthy before clients return to it; `NEVER`
    if they stay until theirs fails."""
    on_switch: OnSwitch = "keep"
    """The fate of open connections if another member is chosen while theirs lives."""
    rotate_every_s: int = 0
    """With ``sticky``, the seconds after which each client gets another member; 0 for never."""
    created_at: str = ""


class Subscription(_Secretive, frozen=True, kw_only=True):
    """A list of nodes at a URL, which is fetched again and again."""

    SECRET = ("url", "headers")

    id: int
    name: str
    url: str
    user_agent: str = ""
    """The User-Agent of the request; empty for egressd's own."""
    headers: str = ""
    """Further fields of the request's head, each in a line of its own: ``Name: value``."""
    group: str = ""
    """The group of nodes that are new."""
    interval_s: int = 0
    """Seconds between two fetches; 0 for the interval that the answer names, else a day."""
    via: str = "DIRECT"
    """The target that the request leaves by."""
    include: str = ""
    """A pattern of RE2's: only nodes in whose names it is found are taken. Empty for all."""
    exclude: str = ""
    """A pattern of RE2's: nodes in whose names it is found are left out. Empty for none."""
    rename: dict[str, str] = {}
    """Pattern of RE2's -> the text that replaces what it finds in names, in this order."""
    gone: NodeGone = "keep"
    """The fate of a node that is gone from the list while something uses it."""
    is_enabled: bool = True
    created_at: str = ""

    def __eq__(self, other: object) -> bool:
        """Compare all fields, and the order of `rename`, which counts."""
        return (
            isinstance(other, Subscription)
            and super().__eq__(other)
            and [*self.rename] == [*other.rename]
        )

    __hash__ = None  # type: ignore[assignment]


class AlertChannel(_Secretive, frozen=True, kw_only=True):
    """A service that alerts are sent to, and the target that they leave by."""

    SECRET = ("url",)

    id: int
    name: str
    url: str
    """A URL of Apprise's."""
    via: str = "DIRECT"
    is_enabled: bool = True
    created_at: str = ""


class AlertPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The events that are alerted, when, and by which channels."""

    on: tuple[str, ...] = DEFAULT_ALERTS
    """Names of `egressd.model.alerts.ALERTS`."""
    for_s: int = 60
    """Seconds that a state lasts before it is alerted."""
    quiet: str = ""
    """Hours of local time in which alerts wait, ``23:00-07:00``; empty for none."""
    channels: tuple[int, ...] = ()
    """Ids of the channels; none for all."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The device's own settings, beyond the v1 API."""

    unmanaged: str = "REJECT"
    """Target of LAN clients that no enabled rule covers."""
    delay_url: str = "https://www.gstatic.com/generate_204"
    check_interval_s: int = 30
    """Seconds between health checks of a group's nodes."""
    group_strategy: GroupStrategy = "urltest"
    sniff_domains: bool = True
    """True if whitelist domains are recognised in clients' traffic."""
    stopped: bool = False
    """True if an operator stopped the service: clients are blocked until it starts again."""
    opened: bool = False
    """True if an operator opened the device: no rule applies, and every client goes out directly.
    ``stopped`` takes precedence."""
    alerts: AlertPolicy = AlertPolicy()
