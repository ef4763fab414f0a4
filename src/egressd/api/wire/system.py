"""The device: status, traffic, interfaces."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from egressd.api.wire.answers import Answer
from egressd.model.messages import RuleCount

Memory = Annotated[int, Meta(description="Resident bytes of egressd's processes.")]
Connections = Annotated[int, Meta(description="Tracked flows of LAN clients.")]

_NAMES = {"has_api_access": "hasAPIAccess", "ad_message": "adMessage"}


class SystemStatus(Answer, frozen=True, kw_only=True, rename=_NAMES):
    """The state of the device."""

    status: Annotated[str, Meta(extra_json_schema={"enum": ["running", "stopped", "restoring"]})]
    uptime: Annotated[str, Meta(description="For people to read.")]
    version: str
    has_api_access: bool
    connections: Connections
    memory: Memory
    ad_message: Annotated[str, Meta(description="Branding.")]


class Traffic(Answer, frozen=True, kw_only=True):
    """Traffic counters."""

    up: Annotated[int, Meta(description="Reserved.")]
    down: Annotated[int, Meta(description="Reserved.")]
    connections: Connections
    memory: Memory


class Interfaces(Answer, frozen=True, kw_only=True):
    """Names of interfaces."""

    interfaces: list[str]


class InterfaceRow(Answer, frozen=True, kw_only=True):
    """An interface and its address."""

    name: str
    ip: Annotated[str, Meta(description="IPv4 address; empty when it has none.")]


class InterfacesWithIp(Answer, frozen=True, kw_only=True):
    """Interfaces and their addresses."""

    interfaces: list[InterfaceRow]


class RuleTraffic(Answer, frozen=True, kw_only=True):
    """The traffic of a rule's clients as the kernel counts it: bytes of IP packets, and packets."""

    upload_bytes: int
    upload_packets: int
    download_bytes: int
    download_packets: int

    @classmethod
    def of(cls, count: RuleCount) -> RuleTraffic:
        """As counted."""
        return cls(
            upload_bytes=count.up_bytes,
            upload_packets=count.up_packets,
            download_bytes=count.down_bytes,
            download_packets=count.down_packets,
        )


class RuleCounters(Answer, frozen=True, kw_only=True):
    """The traffic of each enabled rule, counted at most a second ago."""

    data: Annotated[dict[str, RuleTraffic], Meta(description="By the rule's address.")]


class Health(Answer, frozen=True, kw_only=True):
    """The state of the stored configuration: in force, or not."""

    status: Annotated[
        str, Meta(extra_json_schema={"enum": ["running", "stopped", "restoring", "failed"]})
    ]
