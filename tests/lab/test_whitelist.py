"""The whitelist: every form of entry matched and not matched, for every kind of target."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from egressd.lab.lab import Lab
from egressd.lab.spec import LabSpec
from tests.lab.device_state import add_nodes, clear, send
from tests.lab.hellos import Visit
from tests.lab.whitelisted import save, served, visit

pytestmark = pytest.mark.lab

DOMAINS = """
plain.test, *.star.test
+.plus.test
bücher.test
http://http.test:8000
https://tls.test:9443
quic://quic.test:9443
"""

LISTED = [
    Visit(kind="http", name="plain.test", port=80),
    Visit(kind="http", name="a.plain.test", port=8080),
    Visit(kind="http", name="plain.test:80", port=80),
    Visit(kind="http", name="PLAIN.test", port=80),
    Visit(kind="http", name="star.test", port=80),
    Visit(kind="http", name="a.b.star.test", port=80),
    Visit(kind="http", name="plus.test", port=80),
    Visit(kind="http", name="xn--bcher-kva.test", port=80),
    Visit(kind="http", name="http.test", port=8000),
    Visit(kind="http", name="www.http.test:8000", port=8000),
    Visit(kind="tls1.2", name="plain.test", port=443),
    Visit(kind="tls1.3", name="plain.test", port=443),
    Visit(kind="tls1.3", name="www.plain.test", port=8443),
    Visit(kind="tls1.2", name="plain.test", port=443, pieces=4),
    Visit(kind="tls1.3", name="plain.test", port=443, pieces=4),
    Visit(kind="tls1.2", name="tls.test", port=9443),
    Visit(kind="tls1.3", name="a.tls.test", port=9443),
    Visit(kind="quic", name="plain.test", port=443),
    Visit(kind="quic", name="www.plain.test", port=8443),
    Visit(kind="quic", name="plain.test", port=443, pieces=2),
    Visit(kind="quic", name="plain.test", port=443, pieces=3),
    Visit(kind="quic", name="quic.test", port=9443),
    Visit(kind="quic", name="quic.test", port=9443, pieces=2),
]
UNLISTED = [
    Visit(kind="http", name="other.test", port=80),
    Visit(kind="http", name="notplain.test", port=80),
    Visit(kind="http", name="plain.test.other.test", port=80),
    Visit(kind="http", name="plain.test", port=8000),
    Visit(kind="http", name="http.test", port=80),
    Visit(kind="tls1.2", name="other.test", port=443),
    Visit(kind="tls1.3", name="", port=443),
    Visit(kind="tls1.3", name="plain.test", port=9443),
    Visit(kind="tls1.3", name="plain.test", port=8444),
    Visit(kind="tls1.3", name="tls.test", port=443),
    Visit(kind="tls1.3", name="quic.test", port=9443),
    Visit(kind="quic", name="other.test", port=443),
    Visit(kind="quic", name="other.test", port=443, pieces=2),
    Visit(kind="quic", name="plain.test", port=8444),
    Visit(kind="quic", name="tls.test", port=9443),
    Visit(kind="quic", name="quic.test", port=443),
]


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(clients=4, wans=3)) as lab:
        lab.start_egressd()
        with served(lab):
            yield lab


@pytest.fixture(autouse=True)
def _nodes(lab: Lab) -> Iterator[None]:
    add_nodes(lab)
    yield
    save(lab)
    clear(lab)


def wrong(lab: Lab, client: int, visits: list[Visit], expected: str) -> list[tuple[Visit, str]]:
    """The visits that were seen as another than expected."""
    return [
        (one, seen)
        for one, seen in zip(visits, visit(lab, client, visits), strict=True)
        if seen != expected
    ]


@pytest.mark.parametrize("node", ["DIRECT", "ss", "Group_far"])
@pytest.mark.parametrize("target", ["Interface:wan2", "socks5-udp", "REJECT"])
def test_every_form_of_entry(lab: Lab, target: str, node: str) -> None:
    ss = next(n for n in lab.api.get("/nodes")["data"] if n["name"] == "ss")
    lab.api.patch("/nodes/batch", {"ids": [ss["id"]], "group": "far"})
    send(lab, 1, target)
    before = visit(lab, 1, LISTED[:1])
    save(lab, DOMAINS, node=node)
    there = lab.wan(1).address if node == "DIRECT" else lab.nodes["ss"].address
    own = {"Interface:wan2": lab.wan(2).address, "socks5-udp": lab.nodes["socks5-udp"].address}
    assert wrong(lab, 1, LISTED, there) == []
    seen = visit(lab, 1, UNLISTED)
    if target == "REJECT":
        assert before == ["ConnectionRefusedError"]
        assert not {there, *own.values()}.intersection(seen)
    else:
        assert before == [own[target]]
        assert dict.fromkeys(seen) == {own[target]: None}
