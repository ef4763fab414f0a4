"""Proxy services: local listeners that leave by one interface."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from pydantic import Field

from egressd.api.wire.answers import Answer, Message
from egressd.api.wire.bodies import Body
from egressd.api.wire.fields import Credential, InterfaceName, Name, Port
from egressd.model.drafts import ProxyServiceDraft
from egressd.model.nouns import ProxyService

Username = Annotated[
    Credential, Field(description="User name for clients; empty if none is needed.")
]


class ProxyServiceReplace(Body):
    """A whole proxy service."""

    name: Annotated[Name, Field(description="Unique.")]
    outbound_interface: Annotated[
        InterfaceName, Field(description="The bare name of the interface its traffic leaves by.")
    ]
    port: Annotated[Port, Field(description="The listener's port; not one the system uses.")]
    username: Username
    password: Credential
    is_enabled: bool

    def draft(self) -> ProxyServiceDraft:
        """For `service`."""
        return ProxyServiceDraft(**vars(self))


class ProxyServiceCreate(ProxyServiceReplace):
    """A new proxy service."""

    username: Username = ""
    password: Credential = ""
    is_enabled: bool = True


class ProxyServiceRow(Answer, frozen=True, kw_only=True):
    """A proxy service."""

    id: int
    name: str
    outbound_interface: str
    port: int
    username: str
    password: str
    is_enabled: bool
    created_at: str


class ProxyServiceRows(Answer, frozen=True, kw_only=True):
    """All proxy services, by id."""

    data: list[ProxyServiceRow]


class ProxyServiceSwitched(Answer, frozen=True, kw_only=True):
    """A proxy service's new state."""

    msg: Message
    id: int
    is_enabled: bool


class Quota(Answer, frozen=True, kw_only=True):
    """The number of proxy services that are allowed."""

    quota: Annotated[int, Meta(description="Proxy services allowed in all.")]
    used: Annotated[int, Meta(description="Proxy services created.")]


def proxy_service_row(service: ProxyService) -> ProxyServiceRow:
    """The proxy service as lists show it."""
    return ProxyServiceRow(
        id=service.id,
        name=service.name,
        outbound_interface=service.outbound_interface,
        port=service.port,
        username=service.username,
        password=service.password,
        is_enabled=service.is_enabled,
        created_at=service.created_at,
    )
