"""VPN lines: L2TP and PPTP."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from pydantic import Field, ValidationInfo, field_validator

from egressd.api.wire.answers import Answer, Imported
from egressd.api.wire.bodies import Body
from egressd.api.wire.fields import (
    Credential,
    Host,
    Index,
    InterfaceName,
    LineName,
    Misfit,
    Port,
    Rows,
    Text,
    UsedByL2tp,
)
from egressd.model.bounds import BATCH_MAX, DNS_SERVERS_MAX
from egressd.model.drafts import LineDraft
from egressd.model.messages import LineStatus
from egressd.model.names import DnsProfile, LineType
from egressd.model.nouns import Line
from egressd.model.wording import Coded, Coding, Sentence


def _without_default(schema: dict[str, Any]) -> None:
    # The default depends on the line's type, and says so in its description.
    del schema["default"]


Secret = Annotated[UsedByL2tp, Field(description="IPsec secret; only l2tp uses it.")]
Carrier = Annotated[InterfaceName, Field(description="What carries the line: auto, or a WAN.")]
Profile = Annotated[DnsProfile, Field(description="Who answers the DNS queries of its clients.")]
DnsServers = Annotated[
    list[Host],
    Field(
        max_length=DNS_SERVERS_MAX,
        description="IPv4 addresses; needed when dns_profile is custom.",
        validate_default=True,
    ),
]


class _Line(Body):
    type: Annotated[LineType, Field(description="Cannot change after creation.")]
    name: Annotated[LineName, Field(description="The interface's name in the system.")]
    server: Annotated[Host, Field(description="The VPN server's address.")]
    port: Annotated[Port, Field(description="The VPN server's port.")]
    username: Annotated[Credential, Field(min_length=1)]
    password: Credential
    secret: Secret
    interface: Carrier
    comment: Text
    dns_profile: Profile
    dns_servers: DnsServers

    @field_validator("dns_servers")
    @classmethod
    def _custom_is_served(cls, value: list[str], info: ValidationInfo) -> list[str]:
        if info.data.get("dns_profile") == "custom" and not value:
            raise Misfit("no-dns-server-of-line")
        return value

    def draft(self) -> LineDraft:
        """For `service`."""
        return LineDraft(**{**vars(self), "dns_servers": tuple(self.dns_servers)})


class LineCreate(_Line):
    """A new line; it is created enabled."""

    port: Annotated[
        Port,
        Field(
            description="1701 for l2tp and 1723 for pptp when it is left out.",
            json_schema_extra=_without_default,
        ),
    ] = 0
    secret: Secret = ""
    interface: Carrier = "auto"
    comment: Text = ""
    dns_profile: Profile = "auto"
    dns_servers: Annotated[DnsServers, Field(default_factory=list)]


class LineReplace(_Line):
    """A whole line. Another name than the path's renames it."""

    is_enabled: bool


class LineKey(Body):
    """The key of a line."""

    type: LineType
    name: LineName


class LineKeys(Body):
    """Lines by type and name. Those that are not there are passed over."""

    items: Annotated[list[LineKey], Field(max_length=BATCH_MAX)]

    def keys(self) -> list[tuple[str, str]]:
        """For `service`."""
        return [(item.type, item.name) for item in self.items]


class LineStatusBatch(LineKeys):
    """A switch for several lines."""

    is_enabled: bool


class LineImport(Body):
    """Lines to import. One that is there already, by type and name, is updated."""

    type: LineType
    text: Annotated[Rows, Field(description="Rows separated by newline.")]
    auto_line_name: Annotated[
        bool, Field(alias="autoLineName", description="Number the lines instead of naming them.")
    ] = False
    auto_line_name_start_index: Annotated[
        Index, Field(alias="autoLineNameStartIndex", description="The first number.")
    ] = 1


class LineRow(Answer, frozen=True, kw_only=True):
    """A VPN line."""

    id: int
    type: str
    name: str
    server: str
    port: int
    username: str
    password: str
    secret: str
    interface: str
    comment: str
    dns_profile: str
    dns_servers: list[str]
    is_enabled: bool
    is_online: Annotated[bool, Meta(description="Whether its interface has an IPv4 address.")]


class LineRows(Answer, frozen=True, kw_only=True):
    """All lines, by id."""

    data: list[LineRow]


class LinesImported(Imported, frozen=True, kw_only=True):
    """The result of an import of lines."""

    errors: Annotated[list[str], Meta(description="The first reasons, each `line N: why`.")]


def line_row(line: Line, status: LineStatus) -> LineRow:
    """The line as lists show it."""
    return LineRow(
        id=line.id,
        type=line.type,
        name=line.name,
        server=line.server,
        port=line.port,
        username=line.username,
        password=line.password,
        secret=line.secret,
        interface=line.interface,
        comment=line.comment,
        dns_profile=line.dns_profile,
        dns_servers=list(line.dns_servers),
        is_enabled=line.is_enabled,
        is_online=status.is_online,
    )


class LineState(Coding, frozen=True, kw_only=True):
    """The state of a line."""

    name: str
    type: str
    is_enabled: bool
    is_online: bool
    ip: Annotated[str, Meta(description="The address it was given; empty when it is not online.")]
    state: Annotated[str, Meta(description="One word for programs: online, dialing, lost, …")]
    reason: Annotated[Sentence, Meta(description="Why it is not online, in plain words.")]
    reason_coded: Annotated[Coded | None, Meta(description="The same for programs.")] = None
    next_attempt: Annotated[str, Meta(description="When it is dialled next, in UTC; or empty.")]
    encryption: Annotated[
        Sentence,
        Meta(
            description="Its encryption while it is online, with its weak parts; empty for L2TP "
            "without a secret."
        ),
    ]
    encryption_coded: Annotated[Coded | None, Meta(description="The same for programs.")] = None


class LineStates(Answer, frozen=True, kw_only=True):
    """Every line, the oldest first."""

    data: list[LineState]


def line_state(line: Line, status: LineStatus) -> LineState:
    """A line as operators follow it."""
    return LineState(
        name=line.name,
        type=line.type,
        is_enabled=line.is_enabled,
        is_online=status.is_online,
        ip=status.ip,
        state=status.state,
        reason=status.reason,
        next_attempt=status.next_attempt,
        encryption=status.encryption,
    )
