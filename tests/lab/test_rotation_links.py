"""Rotation by a link: a phone that opens it leaves by another member, no other client moves, and no
log has the key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, add_nodes, eventually, send

pytestmark = pytest.mark.lab

WEB: Final = f"http://{SERVER}/"
PAGE: Final = f"{WEB}page"
SOON_S: Final = 30.0


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(clients=3, nodes=("socks5",))) as lab:
        lab.internet.put_page("ip={ip}\n")
        lab.start_egressd({"exits": {"url": PAGE}}, {"EGRESSD_LOG_LEVEL": "debug"})
        add_nodes(lab)
        body = {"name": "g", "strategy": "sticky", "members": ["Interface:wan2", "socks5"]}
        assert lab.api.ask("POST", "/ops/groups", body).status == 201
        for client in (1, 2):
            send(lab, client, "Group_g")
        yield lab


@pytest.fixture(scope="module")
def link(lab: Lab) -> str:
    """Return the URL of a link for the group, as a phone opens it."""
    path = lab.device.run("tokens", "create", "phones", "rotate:Group_g").strip()
    return lab.device.url + path


def open_link(lab: Lab, client: int, url: str, *options: str) -> tuple[int, Any]:
    """Return the status and the document of a client's request."""
    argv = ("curl", "-s", "-m", "20", "-w", r"\n%{http_code}", *options, url)
    text, _, status = lab.client(client).host.run(*argv).stdout.rpartition("\n")
    return int(status), json.loads(text)


def seen(lab: Lab, client: int) -> str:
    """Return the source address of a client's HTTP request, or its error."""
    reply = lab.client(client).http(WEB, timeout=5)
    return reply.seen or reply.error


def ended(lab: Lab, client: int, url: str) -> dict[str, Any]:
    """Return a rotation once it has ended."""
    found: dict[str, Any] = {"state": "running"}

    def is_over() -> bool:
        found.update(open_link(lab, client, url)[1])
        return bool(found["state"] != "running")

    eventually(is_over, SOON_S)
    return found


def test_p1_a_phone_rotates_itself_by_a_link_and_no_other_moves(lab: Lab, link: str) -> None:
    exits = {lab.wan(2).address, lab.nodes["socks5"].address}
    before, other = seen(lab, 1), seen(lab, 2)
    assert {before, other} == exits
    status, shown = open_link(lab, 1, link)
    assert (status, shown["client"]) == (200, lab.client(1).address)
    assert seen(lab, 1) == before, "a GET rotates nothing"
    status, begun = open_link(lab, 1, link, "-X", "POST")
    assert (status, begun["clients"]) == (202, 1)
    rotation = ended(lab, 1, f"{link}/{begun['id']}")
    (after,) = exits - {before}
    assert (rotation["state"], rotation["exit_after"]) == ("done", after)
    assert seen(lab, 1) == after
    assert seen(lab, 2) == other


def test_a_caller_that_is_no_client_names_the_one(lab: Lab, link: str) -> None:
    before = seen(lab, 1)
    status, refused = open_link(lab, 3, link, "-X", "POST")
    assert status == 400
    assert lab.client(3).address in refused["error"]
    assert seen(lab, 1) == before
    named = f"{link}?client={lab.client(1).address}"
    status, begun = open_link(lab, 3, named, "-X", "POST")
    assert (status, begun["client"]) == (202, lab.client(1).address)
    assert ended(lab, 3, f"{link}/{begun['id']}")["exit_after"] == seen(lab, 1) != before


def test_p7_wrong_keys_rotate_nothing_and_are_limited(lab: Lab, link: str) -> None:
    before = seen(lab, 1)
    for method in ("GET", "POST"):
        status, refused = open_link(lab, 1, f"{link}x", "-X", method)
        assert (status, refused) == (404, {"error": "there is no such link"})
    urls = [f"{link}{number}" for number in range(300)]
    many = lab.client(1).host.run(
        "curl", "-sZ", "--parallel-max", "200", "-o", "/dev/null", "-w", "%{http_code}\\n",
        *(part for url in urls for part in (url, "-o", "/dev/null")),
    )  # fmt: skip
    statuses = many.stdout.split()
    assert set(statuses) == {"404", "429"}
    assert open_link(lab, 2, link)[0] == 200, "others, and the right key, are not affected"
    assert open_link(lab, 1, link)[0] == 200
    assert seen(lab, 1) == before


def test_p7_no_log_and_no_record_has_the_key(lab: Lab, link: str) -> None:
    key = link.rpartition("/")[2]
    status, _ = open_link(lab, 1, f"{link}/", "-X", "POST")
    assert status == 401, "no link, but it has the key in its path"
    logged = lab.device.program.log.read_text()
    assert "/ops/rotate/***" in logged
    assert "wrong key of a rotation link" in logged
    assert key[8:] not in logged
    changes = lab.api.ask("GET", "/ops/changes").body
    assert any(each["who"] == "token phones" for each in changes["data"])
    assert key[8:] not in json.dumps(changes)
    events = lab.api.ask("GET", "/ops/events/latest").body
    assert "another member" in json.dumps(events)
    assert key[8:] not in json.dumps(events)
    kept = [path for path in lab.device.data.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in kept)
    assert [path for path in kept if key[8:].encode() in path.read_bytes()] == []


def test_an_expired_or_deleted_link_is_unknown(lab: Lab, link: str) -> None:
    lab.device.run("tokens", "delete", "phones")
    assert open_link(lab, 1, link, "-X", "POST") == (404, {"error": "there is no such link"})
