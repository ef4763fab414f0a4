"""ICMP echo requests as bytes."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.kernel.icmp import ECHO, echo_request


@given(st.integers(0, 0xFFFF))
def test_the_checksum_of_an_echo_request_is_valid(identifier: int) -> None:
    """The one's complement sum of all words is all ones (RFC 1071)."""
    request = echo_request(identifier)
    total = sum(struct.unpack("!4H", request))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
    assert ECHO.unpack(request)[3] == identifier
