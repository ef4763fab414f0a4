"""xl2tpd's configuration, read back as xl2tpd reads it."""

from __future__ import annotations

from ipaddress import IPv4Address

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.planner.lines import pppd, xl2tpd
from egressd.planner.lines.dial import Dial
from tests.support.daemon_files import CORPUS, LINE, sections


def dial(**changes: object) -> Dial:
    line = msgspec.structs.replace(LINE, **changes)
    return Dial(line=line, server=IPv4Address("203.0.113.9"), local=IPv4Address("198.51.100.2"))


def test_the_configuration_has_one_line_that_dials_once() -> None:
    assert sections(xl2tpd.configuration(dial(port=1702))) == {
        "[global]": {
            "listen-addr": "198.51.100.2",
            "port": "0",
            "max retries": "3",
            "access control": "yes",
            "debug avp": "yes",
        },
        "[lac line]": {
            "lns": "203.0.113.9:1702",
            "autodial": "yes",
            "redial": "no",
            "require authentication": "no",
            "pass peer": "no",
            "pppoptfile": pppd.FILE,
        },
    }


@given(
    server=st.ip_addresses(v=4),
    local=st.ip_addresses(v=4),
    local_port=st.integers(0, 65535),
    port=st.integers(1, 65535),
)
def test_addresses_and_ports_are_read_back(
    server: IPv4Address, local: IPv4Address, local_port: int, port: int
) -> None:
    line = msgspec.structs.replace(LINE, port=port)
    wanted = Dial(line=line, server=server, local=local, local_port=local_port)
    found = sections(xl2tpd.configuration(wanted))
    assert found["[global]"]["listen-addr"] == str(local)
    assert found["[global]"]["port"] == str(local_port)
    assert found["[lac line]"]["lns"] == f"{server}:{port}"


@pytest.mark.parametrize("value", CORPUS)
@pytest.mark.parametrize("field", ["name", "server", "username", "password", "secret", "comment"])
def test_the_configuration_contains_no_text_of_a_line(field: str, value: str) -> None:
    plain = xl2tpd.configuration(dial())
    assert xl2tpd.configuration(dial(**{field: value})) == plain
