"""DNS answers to clients of nodes about names that do not exist, or have no IPv6 address, or have
one: the answers can be cached, and checked (RFC 2308, 6891, 9460).
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from egressd_lab.spec import RESOLVERS
from tests.support.device import send
from tests.support.programs import argv_of

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("nodes")]

V4, V6 = "203.0.113.10", "2001:db8:f::10"
DUAL = "dual.test"
HINTED = f'1 . alpn="h2" ipv4hint="{V4}" ipv6hint="{V6}"'


def ask(lab: Lab, *questions: str) -> list[dict[str, Any]]:
    """Return the answers that client 1 gets."""
    client = lab.client(1)
    argv = argv_of("questions", client.address, RESOLVERS["google"])
    done = subprocess.run(
        exec_argv(client.host.namespace, argv),
        input="\n".join(questions),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def said(rcode: str, *answer: str, soa: str = "", edns: bool = False, dnssec: bool = False) -> Any:
    owners = [soa] if soa else []
    return {"rcode": rcode, "answer": [*answer], "soa": owners, "edns": edns, "dnssec": dnssec}


@pytest.mark.parametrize("node", ["ss", "socks5"])  # over UDP, and over TCP
def test_negative_answers_have_a_soa_record_for_caching(lab: Lab, node: str) -> None:
    send(lab, 1, node)
    nowhere = said("NXDOMAIN", soa=".")
    assert ask(lab, "no.such AAAA", "no.such A", "no.such TXT") == [nowhere] * 3
    assert ask(lab, "www.test AAAA") == [said("NOERROR", soa=".")]
    (withheld,) = ask(lab, f"{DUAL} AAAA")
    assert withheld == said("NOERROR", soa=f"{DUAL}.")
    assert ask(lab, f"{DUAL} A", f"{DUAL} HTTPS") == [said("NOERROR", V4), said("NOERROR", HINTED)]


def test_queries_with_edns_get_answers_with_edns(lab: Lab) -> None:
    send(lab, 1, "ss")
    asked = [f"nowhere.{kind} {kind} edns" for kind in ("AAAA", "A", "MX")]
    assert ask(lab, *asked) == [said("NXDOMAIN", soa=".", edns=True)] * 3


def test_queries_with_dnssec_get_unfiltered_answers(lab: Lab) -> None:
    send(lab, 1, "ss")
    told = ask(lab, f"{DUAL} AAAA dnssec", f"{DUAL} HTTPS dnssec", f"{DUAL} DNSKEY dnssec")
    assert told == [
        said("NOERROR", V6, edns=True, dnssec=True),
        said("NOERROR", HINTED, edns=True, dnssec=True),
        said("NOERROR", soa=".", edns=True, dnssec=True),
    ]
