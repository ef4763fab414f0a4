"""The whitelist: destinations that go their own way for every client."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from pydantic import Field

from egressd.api.wire.answers import Answer
from egressd.api.wire.bodies import Body
from egressd.api.wire.fields import Lines, Target, Text, form
from egressd.model.bounds import BATCH_MAX


class WhitelistReplace(Body):
    """The whole whitelist. Saving it closes the connections of clients with a rule."""

    domains: Annotated[Lines, Field(description="Domains, comma or newline separated.")]
    ips: Annotated[Lines, Field(description="IPv4 addresses and CIDRs, likewise.")]
    node: Annotated[
        Target,
        Field(
            description="Where it all goes. Never Interface:.",
            json_schema_extra=form("whitelist-target"),
        ),
    ]


class WhitelistChange(Body):
    """Entries to add and to take off."""

    add: Annotated[
        list[Text],
        Field(
            default_factory=list,
            max_length=BATCH_MAX,
            description="Domains, IPv4 addresses and CIDRs.",
        ),
    ]
    remove: Annotated[
        list[Text],
        Field(default_factory=list, max_length=BATCH_MAX, description="As they are written."),
    ]


class WhitelistAnswer(Answer, frozen=True, kw_only=True):
    """The whitelist as it was saved."""

    domains: Annotated[str, Meta(description="Domains, comma or newline separated.")]
    ips: Annotated[str, Meta(description="IPv4 addresses and CIDRs, likewise.")]
    node: Annotated[str, Meta(description="DIRECT, a node's name or Group_<group name>.")]
