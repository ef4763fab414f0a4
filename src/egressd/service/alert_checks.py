"""The valid values of alerts' channels and policy. Each check yields the faults of one field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from egressd.model.alert_urls import host_of, why_not_url
from egressd.model.alerts import ALERTS, CHANNELS_MAX, FOR_MAX_S
from egressd.model.bounds import ALERT_URL_MAX
from egressd.model.faults import Fault, fault
from egressd.model.names import parse_target
from egressd.model.nouns import AlertChannel, AlertPolicy
from egressd.service import checks
from egressd.service.alert_book import hours_of
from egressd.service.servers import ServerSurroundings

NAME_MAX: Final = 64
_HOURS: Final = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]-(?:[01][0-9]|2[0-3]):[0-5][0-9]")


def url_problems(url: str) -> Iterator[Fault]:
    """Yield the fault of a channel's URL."""
    if len(url) > ALERT_URL_MAX:
        yield fault("url", "too-long", most=ALERT_URL_MAX)
    elif unfit := why_not_url(url):
        yield fault("url", unfit.code, **unfit.values)


def inner_problems(url: str, around: ServerSurroundings) -> Iterator[Fault]:
    """Yield the fault that a URL names an address of this device, or of a LAN."""
    if address := around.near_address(host_of(url)):
        yield fault("url", "alert-url-own", host=str(address))


def stored_problems(channel: AlertChannel) -> Iterator[Fault]:
    """Yield every fault of a channel that can be found without the state."""
    yield from checks.text("name", channel.name, NAME_MAX, least=1)
    yield from url_problems(channel.url)
    yield from checks.stored_target("via", channel.via)
    yield from blocking_problems(channel.via)


def blocking_problems(via: str) -> Iterator[Fault]:
    """Yield the fault of a target that lets nothing out."""
    if parse_target(via).kind == "reject":
        yield fault("via", "via-blocks")


def policy_problems(policy: AlertPolicy) -> Iterator[Fault]:
    """Yield every fault of a policy but those of its channels, which may be gone."""
    if any(name not in ALERTS for name in policy.on):
        yield fault("on", "one-of", choices=tuple(ALERTS))
    yield from checks.whole("for_s", policy.for_s, 0, FOR_MAX_S)
    if policy.quiet and (not _HOURS.fullmatch(policy.quiet) or hours_of(policy.quiet) is None):
        yield fault("quiet", "alert-hours")
    if len(policy.channels) > CHANNELS_MAX:
        yield fault("channels", "alert-channels-many", most=CHANNELS_MAX)
