"""The objects of the configuration under ``/ops``: changes of some fields, and the results.

A field that is not given stays. Rows and new objects have the schemas of ``/svc/api/v1``, nodes
with some more fields.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Header
from msgspec import Meta
from pydantic import ConfigDict, Field

from egressd.api.wire.answers import Message
from egressd.api.wire.bodies import Body
from egressd.api.wire.fields import (
    ConfigJson,
    Credential,
    Group,
    Host,
    InterfaceName,
    LineName,
    Lines,
    Name,
    NodeName,
    Port,
    Protocol,
    RuleIp,
    Target,
    TargetOrEmpty,
    Text,
    UsedByL2tp,
    form,
)
from egressd.api.wire.lines import LineRow
from egressd.api.wire.nodes import NodeCreate, NodeRow, node_row
from egressd.api.wire.proxy_services import ProxyServiceRow
from egressd.api.wire.rules import Limit, Mac, RuleRow
from egressd.api.wire.whitelist import WhitelistAnswer
from egressd.model.bounds import DNS_SERVERS_MAX, URL_MAX
from egressd.model.drafts import ChangeIp, NodeDraft
from egressd.model.names import DnsProfile
from egressd.model.nouns import Node

IfMatch = Annotated[
    str,
    Header(
        alias="if-match",
        max_length=1000,
        description="The ETag of the version that is changed. With another one the answer is 412.",
    ),
]
_NOT_GIVEN: Any = None


def _without_defaults(schema: dict[str, Any]) -> None:
    for field in schema["properties"].values():
        del field["default"]


ChangeIpUrl = Annotated[
    str,
    Field(
        max_length=URL_MAX,
        pattern=r"^(https?://[!-~]+)?$",
        description="A page by which the node leaves by another address; empty for none.",
        json_schema_extra=form("url", most=URL_MAX),
    ),
]
ChangeIpVia = Annotated[
    TargetOrEmpty,
    Field(description="The target that the page is asked by; empty for the node itself."),
]


class NodeAdd(NodeCreate):
    """A new node, with what only ``/ops`` has."""

    change_ip_url: ChangeIpUrl = ""
    change_ip_via: ChangeIpVia = ""

    def draft(self) -> NodeDraft:
        """For `service`."""
        return NodeDraft(**self.model_dump(include={*NodeDraft.__struct_fields__}))

    def change_ip(self) -> ChangeIp:
        """For `service`."""
        return ChangeIp(change_ip_url=self.change_ip_url, change_ip_via=self.change_ip_via)


class FieldsChange(Body):
    """Some fields of an object."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)

    def given(self) -> dict[str, Any]:
        """Return the fields that were given."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class RuleChange(FieldsChange):
    """Some fields of a rule."""

    ip: RuleIp = _NOT_GIVEN
    mac: Mac = _NOT_GIVEN
    comment: Text = _NOT_GIVEN
    is_enabled: bool = _NOT_GIVEN
    target_node: Target = _NOT_GIVEN
    upload_limit_kbps: Limit = _NOT_GIVEN
    download_limit_kbps: Limit = _NOT_GIVEN


class NodeChange(FieldsChange):
    """Some fields of a node. Another name renames it, and moves what refers to it."""

    name: NodeName = _NOT_GIVEN
    protocol: Protocol = _NOT_GIVEN
    config_json: ConfigJson = _NOT_GIVEN
    group: Group = _NOT_GIVEN
    change_ip_url: ChangeIpUrl = _NOT_GIVEN
    change_ip_via: ChangeIpVia = _NOT_GIVEN


class LineChange(FieldsChange):
    """Some fields of a line. Another name renames it, and moves what refers to it."""

    name: LineName = _NOT_GIVEN
    server: Host = _NOT_GIVEN
    port: Port = _NOT_GIVEN
    username: Annotated[Credential, Field(min_length=1)] = _NOT_GIVEN
    password: Credential = _NOT_GIVEN
    secret: UsedByL2tp = _NOT_GIVEN
    interface: InterfaceName = _NOT_GIVEN
    comment: Text = _NOT_GIVEN
    dns_profile: DnsProfile = _NOT_GIVEN
    dns_servers: Annotated[list[Host], Field(max_length=DNS_SERVERS_MAX)] = _NOT_GIVEN
    is_enabled: bool = _NOT_GIVEN

    def given(self) -> dict[str, Any]:
        """Return the fields that were given."""
        fields = super().given()
        if "dns_servers" in fields:
            fields["dns_servers"] = tuple(fields["dns_servers"])
        return fields


class ProxyServiceChange(FieldsChange):
    """Some fields of a proxy service."""

    name: Name = _NOT_GIVEN
    outbound_interface: InterfaceName = _NOT_GIVEN
    port: Port = _NOT_GIVEN
    username: Credential = _NOT_GIVEN
    password: Credential = _NOT_GIVEN
    is_enabled: bool = _NOT_GIVEN


class WhitelistPut(Body):
    """The whole whitelist. Saving it closes the connections of clients with a rule."""

    domains: Lines
    ips: Lines
    node: Annotated[Target, Field(json_schema_extra=form("whitelist-target"))]


class RuleSaved(RuleRow, frozen=True, kw_only=True):
    """The rule as it is stored, and in force."""

    msg: Message


class NodeObject(NodeRow, frozen=True, kw_only=True):
    """A node, with what only ``/ops`` has."""

    change_ip_url: Annotated[
        str, Meta(description="A page by which it leaves by another address; empty for none.")
    ]
    change_ip_via: Annotated[
        str, Meta(description="The target that the page is asked by; empty for the node itself.")
    ]
    subscription: Annotated[
        int, Meta(description="The id of the subscription that it comes from; 0 for none.")
    ]
    gone_at: Annotated[
        str,
        Meta(description="Since when its list has it no longer, so that it blocks; else empty."),
    ]


class NodeSaved(NodeObject, frozen=True, kw_only=True):
    """The node as it is stored, and in force."""

    msg: Message


class LineSaved(LineRow, frozen=True, kw_only=True):
    """The line as it is stored, and in force."""

    msg: Message


class ProxyServiceSaved(ProxyServiceRow, frozen=True, kw_only=True):
    """The proxy service as it is stored, and in force."""

    msg: Message


class WhitelistSaved(WhitelistAnswer, frozen=True, kw_only=True):
    """The whitelist as it is stored, and in force."""

    msg: Message


def node_object(node: Node) -> NodeObject:
    """The node as ``/ops`` shows it."""
    return NodeObject(
        **msgspec.structs.asdict(node_row(node)),
        change_ip_url=node.change_ip_url,
        change_ip_via=node.change_ip_via,
        subscription=node.subscription,
        gone_at=node.gone_at,
    )
