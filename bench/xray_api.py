"""Xray's own API for its routing rules (``RoutingService``, gRPC), as ``xray api adrules`` and
``rmrules`` use it.

Only two messages are needed, so they are encoded here (protobuf's wire format: a key of field
number and kind, then a length and bytes).
"""

from __future__ import annotations

import socket

import grpc  # type: ignore[import-not-found, import-untyped, unused-ignore]

_SERVICE = "/xray.app.router.command.RoutingService/"


class XrayApi:
    """A connected client of the API. Calls wait for their answers."""

    def __init__(self, target: str) -> None:
        channel = grpc.insecure_channel(target)
        grpc.channel_ready_future(channel).result(timeout=10)
        raw = {"request_serializer": bytes, "response_deserializer": bytes}
        self._add = channel.unary_unary(_SERVICE + "AddRule", **raw)
        self._remove = channel.unary_unary(_SERVICE + "RemoveRule", **raw)

    def add(self, name: str, source: str, outbound: str) -> None:
        """Append the rule `name`: traffic from the address `source` leaves by `outbound`."""
        cidr = _field(1, socket.inet_aton(source)) + bytes([2 << 3, 32])
        # RoutingRule: the outbound's tag, the rule's own, a source (IPRule.custom.cidr).
        rule = _text(1, outbound) + _text(19, name) + _field(11, _field(2, _field(1, cidr)))
        config = _text(1, "xray.app.router.Config") + _field(2, _field(2, rule))
        self._add(_field(1, config) + bytes([2 << 3, 1]))  # append, and keep the others

    def remove(self, name: str) -> None:
        """Remove the rule `name`."""
        self._remove(_text(1, name))


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
