"""The devices of LANs."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Header, Path
from msgspec import Meta
from pydantic import AfterValidator, BeforeValidator, Field

from egressd.api.wire.answers import Answer, Message
from egressd.api.wire.bodies import Body, Query
from egressd.api.wire.fields import ONE_LINE, Misfit, Text, decimal, form
from egressd.model.devices import DEVICE_NAME_MAX, DEVICES_MAX, normal_mac
from egressd.service.device_views import DeviceSeen


def _in_normal_form(value: str) -> str:
    mac = normal_mac(value)
    if mac is None:
        raise Misfit("mac-form")
    return mac


SEARCH_MAX: Final = 200

MacInPath = Annotated[
    str,
    Path(
        alias="mac",
        max_length=17,
        description="Six bytes with colons or hyphens.",
        json_schema_extra=form("mac-form"),
    ),
    AfterValidator(_in_normal_form),
]
IfMatch = Annotated[
    str,
    Header(
        alias="if-match",
        max_length=1000,
        description="The ETag of the version that is changed, as GET has answered it.",
    ),
]


class DevicesQuery(Query):
    """The number of devices, and what they are searched for."""

    limit: Annotated[
        int, Field(ge=1, le=DEVICES_MAX, strict=True, description="The first ones."),
        BeforeValidator(decimal),
    ] = 10_000  # fmt: skip
    search: Annotated[
        str,
        Field(
            max_length=SEARCH_MAX,
            pattern=ONE_LINE,
            description="Words that each device in the answer has in its name, host name, vendor, "
            "comment, MAC or addresses, in any case; empty for all devices.",
        ),
    ] = ""


class DeviceUpdate(Body):
    """An operator's name and comment for a device, and whether its rule belongs to it. A field that
    is not given stays.
    """

    name: Annotated[
        Text | None, Field(max_length=DEVICE_NAME_MAX, description="Empty for none.")
    ] = None
    comment: Text | None = None
    is_bound: Annotated[
        bool | None,
        Field(
            strict=True,
            description="Whether the rule of its address belongs to it: the rule follows it to "
            "another address, and no other device may use that address.",
        ),
    ] = None


class DeviceList(Answer, frozen=True, kw_only=True):
    """The devices that were seen in LANs."""

    total: Annotated[int, Meta(description="All devices that are known, or found.")]
    without_rule: Annotated[int, Meta(description="The number of them that no rule covers.")]
    data: Annotated[
        list[DeviceSeen], Meta(description="Those without a rule first, then by last_seen.")
    ]


class DeviceAnswer(DeviceSeen, frozen=True, kw_only=True):
    """A device that was seen in a LAN."""


class SaidMac(Answer, frozen=True, kw_only=True):
    """It is stored."""

    msg: Message
    mac: str
