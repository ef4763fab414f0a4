"""ECHConfigLists, built by hand from RFC 9849's structures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.ech import is_config_list


def vector(size: int, data: bytes) -> bytes:
    return len(data).to_bytes(size, "big") + data


def config(version: int = 0xFE0D, name: bytes = b"public.example", more: bytes = b"") -> bytes:
    key, suites = vector(2, bytes(32)), vector(2, bytes.fromhex("00010001"))
    content = b"\7" + b"\0\x20" + key + suites + b"\0" + vector(1, name) + vector(2, b"") + more
    return version.to_bytes(2, "big") + vector(2, content)


GOOD = vector(2, config())


@pytest.mark.parametrize("data", [GOOD, vector(2, config(0xFE0A) + config())])
def test_a_valid_list_is_recognised(data: bytes) -> None:
    assert is_config_list(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(3),
        b"\0\0",
        GOOD + b"\0",
        vector(2, config(0xFE0A)),
        vector(2, config(name=b"")),
        vector(2, config(more=b"\0")),
        *(GOOD[:size] for size in range(1, len(GOOD))),
    ],
)
def test_an_invalid_list_is_not_recognised(data: bytes) -> None:
    assert not is_config_list(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_handled(data: bytes) -> None:
    assert is_config_list(data) in (True, False)
