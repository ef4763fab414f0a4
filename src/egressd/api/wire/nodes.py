"""Nodes: the upstream proxies."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from pydantic import Field, ValidationInfo, field_validator

from egressd.api.wire.answers import Answer, Imported
from egressd.api.wire.bodies import Body, Ids, Query, TextImport
from egressd.api.wire.fields import (
    ConfigJson,
    Group,
    Index,
    InterfaceNameOrEmpty,
    Lines,
    Misfit,
    NodeName,
    Protocol,
    Text,
    Timeout,
    Url,
)
from egressd.api.wire.outcomes import import_done
from egressd.model.drafts import ImportOutcome, NodeBatch, NodeDraft
from egressd.model.names import DnsProfile
from egressd.model.nouns import Node
from egressd.model.wording import Sentence

GroupField = Annotated[Group, Field(description="The group it belongs to; empty for none.")]
UrlField = Annotated[
    Url | None, Field(description="What to fetch; the device's delay URL when it is left out.")
]


class NodeReplace(Body):
    """A whole node."""

    name: Annotated[
        NodeName,
        Field(
            description="Unique, and not to be taken for another's, for DIRECT or REJECT, by how it"
            " looks. No comma; nothing that cannot be seen."
        ),
    ]
    protocol: Annotated[Protocol, Field(description="How to speak to the upstream proxy.")]
    config_json: Annotated[
        ConfigJson, Field(description="JSON text with the keys of a Clash proxy entry.")
    ]
    group: GroupField

    def draft(self) -> NodeDraft:
        """For `service`."""
        return NodeDraft(**vars(self))


class NodeCreate(NodeReplace):
    """A new node."""

    group: GroupField = ""


class NodeBatchUpdate(Ids):
    """A change of several nodes. What is absent or null is left alone; an empty text clears it."""

    group: Annotated[Group | None, Field(description="The new group.")] = None
    interface_name: Annotated[
        InterfaceNameOrEmpty | None,
        Field(description="Egress interface; not together with dialer_proxy."),
    ] = None
    dialer_proxy: Annotated[
        Group | None, Field(description="Relaying node; not together with interface_name.")
    ] = None
    node_dns_profile: Annotated[
        Literal["", DnsProfile] | None,
        Field(description="Who answers the DNS queries of the node's clients."),
    ] = None
    node_dns_servers: Annotated[
        Lines | None,
        Field(
            description="Comma or newline separated; needed when node_dns_profile is custom.",
            validate_default=True,
        ),
    ] = None

    @field_validator("dialer_proxy")
    @classmethod
    def _one_egress(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and info.data.get("interface_name"):
            raise Misfit("empty-beside", other="interface_name")
        return value

    @field_validator("node_dns_servers")
    @classmethod
    def _custom_is_served(cls, value: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("node_dns_profile") == "custom" and not (value or "").strip(" ,\t\r\n"):
            raise Misfit("no-dns-server")
        return value

    def draft(self) -> NodeBatch:
        """For `service`."""
        return NodeBatch(**{**vars(self), "ids": tuple(self.ids)})


class NodeImport(TextImport):
    """Nodes to import."""

    type: Annotated[
        Literal["socks5", "ss", "vlessvmess", "others"], Field(description="The form of the rows.")
    ]
    group: Annotated[Group, Field(description="The group of the imported nodes.")] = ""
    auto_node_name: Annotated[
        bool, Field(alias="autoNodeName", description="Number the nodes instead of naming them.")
    ] = False
    auto_node_name_start_index: Annotated[
        Index, Field(alias="autoNodeNameStartIndex", description="The first number.")
    ] = 1


class NodeListImport(NodeImport):
    """Nodes to import, and what is said of the list as a whole."""

    private_servers: Annotated[
        bool,
        Field(
            alias="privateServers",
            description="Take servers in private networks and LANs, too; never this device.",
        ),
    ] = False


class DelayQuery(Query):
    """The parameters of a measurement of one node's delay."""

    name: Annotated[Text, Field(min_length=1, description="The node's name.")]
    url: UrlField = None
    timeout: Annotated[Timeout, Field(description="Milliseconds.")] = 5000


class DelayAllQuery(Query):
    """The parameters of a measurement of all nodes' delays."""

    url: UrlField = None
    timeout: Annotated[Timeout, Field(description="Milliseconds.")] = 8000


class NodeRow(Answer, frozen=True, kw_only=True):
    """A node."""

    id: int
    name: str
    protocol: str
    config_json: str
    group: str
    created_at: str


class NodeRows(Answer, frozen=True, kw_only=True):
    """All nodes, by id."""

    data: list[NodeRow]


class NodesImported(Imported, frozen=True, kw_only=True):
    """The result of an import of nodes."""

    errors: Annotated[int, Meta(description="Bad rows.")]
    error_rows: Annotated[list[str], Meta(description="The first reasons, each `line N: why`.")]


class NodeDelay(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """Milliseconds from the connect to the head of the response; -1 with the reason if none."""

    delay: int
    error: Sentence | msgspec.UnsetType = msgspec.UNSET


class NodeDelays(Answer, frozen=True, kw_only=True):
    """Delays by node name; -1 where it failed or timed out."""

    data: dict[str, int]


def nodes_imported(outcome: ImportOutcome) -> NodesImported:
    """The answer to an import of nodes."""
    return NodesImported(
        msg=import_done("node", outcome),
        imported=outcome.imported,
        skipped=outcome.skipped,
        errors=outcome.error_count,
        error_rows=list(outcome.errors),
    )


def node_row(node: Node) -> NodeRow:
    """The node as lists show it."""
    return NodeRow(
        id=node.id,
        name=node.name,
        protocol=node.protocol,
        config_json=node.config_json,
        group=node.group,
        created_at=node.created_at,
    )
