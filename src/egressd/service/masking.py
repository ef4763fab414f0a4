"""Objects without their secrets, for callers that may only read."""

from __future__ import annotations

import msgspec

from egressd.formats.masking import masked_config, masked_text
from egressd.model.nouns import AlertChannel, Line, Node, ProxyService, Subscription
from egressd.service.subscription_checks import headers_of, lines_of


def masked_node(node: Node) -> Node:
    """Return a node without its credentials."""
    return msgspec.structs.replace(
        node,
        config_json=masked_config(node.config_json),
        change_ip_url=masked_text(node.change_ip_url),
    )


def masked_line(line: Line) -> Line:
    """Return a line without its password and secret."""
    return msgspec.structs.replace(
        line, password=masked_text(line.password), secret=masked_text(line.secret)
    )


def masked_service(service: ProxyService) -> ProxyService:
    """Return a proxy service without its password."""
    return msgspec.structs.replace(service, password=masked_text(service.password))


def masked_channel(channel: AlertChannel) -> AlertChannel:
    """Return an alert channel without its URL."""
    return msgspec.structs.replace(channel, url=masked_text(channel.url))


def masked_subscription(subscription: Subscription) -> Subscription:
    """Return a subscription without its URL and the values of its header fields."""
    headers = {name: masked_text(value) for name, value in headers_of(subscription.headers).items()}
    return msgspec.structs.replace(
        subscription, url=masked_text(subscription.url), headers=lines_of(headers)
    )
