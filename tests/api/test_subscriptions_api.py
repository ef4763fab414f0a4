"""``/ops/subscriptions``: the resource, and what a fetched list makes of nodes and rules."""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.instances import KernelPath, NodePath
from egressd.model.messages import FetchPage, PageFetched, Status
from egressd.model.plan import SINGLES, TABLES, difference
from egressd.model.wording import say
from egressd.planner.name_filters import replaced
from egressd.planner.registry import MARK_DIRECT
from egressd.service import number_allocation
from egressd.service.group_checks import GroupDraft
from egressd.service.looks import Looks
from egressd.service.subscription_records import RETRY_S
from tests.support.drafts import node, rule
from tests.support.netd_double import difference_applied

if TYPE_CHECKING:
    from tests.support.api_device import Device

LISTS = "/ops/subscriptions"
ASKS = {"accept": "application/problem+json"}
URL = "https://lists.example.com/get?token=s3cret"


async def send(device: Device, method: str, path: str, body: Any = None, tag: str = "") -> Any:
    headers = {**ASKS, "if-match": tag} if tag else ASKS
    more = {} if body is None else {"json": body}
    return await device.client.request(method, LISTS + path, headers=headers, **more)


async def made(device: Device, **fields: Any) -> int:
    body = {"name": "seller", "url": URL, "is_enabled": False, **fields}
    response = await send(device, "POST", "", body)
    assert response.status_code == 201, response.text
    return int(response.json()["id"])


async def faults(device: Device, **fields: Any) -> list[tuple[str, str]]:
    response = await send(device, "POST", "", {"name": "seller", "url": URL, **fields})
    assert response.status_code in (400, 409), response.text
    return [(each["pointer"], each["code"]) for each in response.json()["errors"]]


def serve(device: Device, *rows: str, **fields: str) -> None:
    """Have the list's server answer with rows."""
    content = "\n".join(rows).encode()
    device.bench.netd.page = lambda _: PageFetched(content=content, fields=fields)


def link(name: str, password: str = "p", host: str = "198.51.100.7", port: int = 8388) -> str:
    login = b64encode(f"aes-256-gcm:{password}".encode()).decode()
    return f"ss://{login}@{host}:{port}#{name}"


async def refreshed(device: Device, number: int, *, dry_run: bool = False) -> dict[str, Any]:
    response = await send(device, "POST", f"/{number}/refresh", {"dry_run": dry_run})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def fates(answer: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["fate"] for each in answer["nodes"]}


def nodes(device: Device) -> dict[str, int]:
    return {each.name: each.id for each in device.bench.nodes.list()}


async def shown(device: Device, number: int) -> dict[str, Any]:
    found: dict[str, Any] = (await send(device, "GET", f"/{number}")).json()
    return found


# --- The resource. -------------------------------------------------------------------------------


async def test_a_subscription_is_made_shown_changed_and_deleted(device: Device) -> None:
    fields = {
        "user_agent": "clash-verge",
        "headers": {"X-Key": "h3ader"},
        "group": "asia",
        "interval_s": 3600,
        "via": "Interface:wan2",
        "include": "hk",
        "exclude": "expire",
        "rename": {"^": "s-"},
        "gone": "delete",
    }
    response = await send(device, "POST", "", {"name": "seller", "url": URL, **fields})
    assert response.status_code == 201
    assert response.headers["location"] == f"{LISTS}/1"
    row = (await send(device, "GET", "/1")).json()
    assert {name: row[name] for name in fields if name != "headers"} == {
        name: value for name, value in fields.items() if name != "headers"
    }
    assert (row["host"], row["header_names"]) == ("lists.example.com", ["X-Key"])
    listed = await send(device, "GET", "")
    assert listed.json() == {"data": [row]}
    for text in (response.text, listed.text):
        assert "s3cret" not in text
        assert "h3ader" not in text
    tag = (await send(device, "GET", "/1")).headers["etag"]
    changed = await send(device, "PATCH", "/1", {"via": "DIRECT"}, tag)
    assert (changed.status_code, changed.json()["via"]) == (200, "DIRECT")
    assert changed.json()["user_agent"] == "clash-verge"
    assert (await send(device, "PATCH", "/1", {"via": "DIRECT"}, tag)).status_code == 412
    assert (await send(device, "DELETE", "/1")).json()["msg"] == "subscription seller deleted"
    assert (await send(device, "GET", "/1")).status_code == 404


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"url": "ftp://example.com/"}, ("/url", "url")),
        ({"url": "https://u:p@example.com/"}, ("/url", "url")),
        ({"url": "https://[/"}, ("/url", "url")),
        ({"url": "https://10.0.0.1/x"}, ("/url", "errand-host-inner")),
        ({"url": "https://203.0.113.2/x"}, ("/url", "errand-host-inner")),
        ({"url": "https://198.18.7.9/x"}, ("/url", "errand-host-inner")),
        ({"url": "http://127.0.0.1:8787/x"}, ("/url", "errand-host-inner")),
        ({"url": "http://localhost/x"}, ("/url", "errand-host-inner")),
        ({"url": "http://[::1]/x"}, ("/url", "errand-host-ipv6")),
        ({"via": "REJECT"}, ("/via", "via-blocks")),
        ({"via": "nobody"}, ("/via", "target-missing")),
        ({"include": "("}, ("/include", "name-filter")),
        ({"exclude": "(?<=a)b"}, ("/exclude", "name-filter")),
        ({"rename": {"(": ""}}, ("/rename/(", "name-filter")),
        ({"rename": {"a": "\\1"}}, ("/rename/a", "rename-place")),
        ({"rename": {"": "x"}}, ("/rename/", "empty")),
        ({"interval_s": 5}, ("/interval_s", "whole-number")),
        ({"headers": {"Host": "x"}}, ("/headers", "header-own")),
        ({"group": "a,b"}, ("/group", "comma")),
        ({"name": ""}, ("/name", "string-of-length")),
    ],
)
async def test_bad_fields_are_refused_by_name(
    device: Device, fields: dict[str, Any], fault: tuple[str, str]
) -> None:
    assert (await faults(device, **fields)).count(fault) == 1
    assert not device.bench.ledger.state.subscriptions


async def test_a_fault_within_an_object_names_its_place(device: Device) -> None:
    """Past fault: it said that a header field must be a JSON object."""
    for fields, pointer, code in (
        ({"headers": {"X": "\u00e9"}}, "/headers/X", "ascii-text"),
        ({"headers": {"X": 5}}, "/headers/X", "ascii-text"),
        ({"headers": {"X Y": "a"}}, "/headers/X Y", "header-name-form"),
        ({"rename": {"a" * 501: "b"}}, f"/rename/{'a' * 64}", "string"),
        ({"rename": {"a": 5}}, "/rename/a", "string"),
        # As pydantic calls a name that does not fit.
        ({"rename": {"[key]": 5}}, "/rename/[key]", "string"),
        ({"[key]": 5}, "/[key]", "unknown-field"),
    ):
        assert await faults(device, **fields) == [(pointer, code)]


async def test_names_are_unique(device: Device) -> None:
    await made(device)
    assert await faults(device) == [("/name", "name-taken")]
    assert await faults(device, name="sel1er") == [("/name", "name-looks-taken")]


# --- What a list makes of nodes. -----------------------------------------------------------------


async def test_nodes_keep_their_ids_names_and_rules(device: Device) -> None:
    number = await made(device, group="asia")
    serve(device, link("hk"), link("jp", host="198.51.100.8"), link("us", host="198.51.100.9"))
    answer = await refreshed(device, number)
    assert answer["refreshed"]["added"] == 3
    before = nodes(device)
    for place, name in enumerate(before, start=11):
        await device.bench.rules.create(rule(f"10.0.0.{place}", name))
    # A password, a name, and nothing.
    serve(
        device,
        link("us", host="198.51.100.9"),
        link("jp", "other", host="198.51.100.8"),
        link("hongkong"),
    )
    answer = await refreshed(device, number)
    assert fates(answer) == {"hongkong": "renamed", "jp": "changed", "us": "same"}
    (jp,) = (each for each in answer["nodes"] if each["name"] == "jp")
    assert jp["changed"] == ["password"]
    after = nodes(device)
    assert after == {"hongkong": before["hk"], "jp": before["jp"], "us": before["us"]}
    targets = {each.host: each.target_node for each in device.bench.ledger.state.rules.values()}
    assert targets == {"10.0.0.11": "hongkong", "10.0.0.12": "jp", "10.0.0.13": "us"}


async def test_a_list_that_is_the_same_changes_nothing(device: Device) -> None:
    number = await made(device)
    serve(device, link("hk"), link("jp", host="198.51.100.8"))
    await refreshed(device, number)
    revision = device.bench.ledger.revision
    answer = await refreshed(device, number)
    assert {*fates(answer).values()} == {"same"}
    assert device.bench.ledger.revision == revision


async def test_nodes_may_exchange_their_names(device: Device) -> None:
    number = await made(device)
    serve(device, link("a", host="198.51.100.7"), link("b", host="198.51.100.8"))
    await refreshed(device, number)
    before = nodes(device)
    await device.bench.rules.create(rule("10.0.0.5", "a"))
    await device.bench.rules.create(rule("10.0.0.6", "b"))
    serve(device, link("b", host="198.51.100.7"), link("a", host="198.51.100.8"))
    await refreshed(device, number)
    assert nodes(device) == {"b": before["a"], "a": before["b"]}
    state = device.bench.ledger.state
    assert {each.host: each.target_node for each in state.rules.values()} == {
        "10.0.0.5": "b",
        "10.0.0.6": "a",
    }


async def test_a_name_given_here_stays(device: Device) -> None:
    number = await made(device)
    serve(device, link("hk"))
    await refreshed(device, number)
    (node_id,) = nodes(device).values()
    await device.bench.nodes.revise(node_id, {"name": "mine"}, ())
    serve(device, link("hk-new"))
    await refreshed(device, number)
    assert nodes(device) == {"mine": node_id}


async def test_settings_of_a_node_outlast_a_new_password(device: Device) -> None:
    number = await made(device)
    serve(device, link("hk"))
    await refreshed(device, number)
    (node_id,) = nodes(device).values()
    stored = device.bench.nodes.get(node_id)
    config = json.loads(stored.config_json) | {"interface-name": "wan2"}
    await device.bench.nodes.revise(node_id, {"config_json": json.dumps(config)}, ())
    assert fates(await refreshed(device, number)) == {"hk": "same"}
    serve(device, link("hk", "other"))
    assert fates(await refreshed(device, number)) == {"hk": "changed"}
    config = json.loads(device.bench.nodes.get(node_id).config_json)
    assert (config["password"], config["interface-name"]) == ("other", "wan2")


async def test_one_password_of_2000_nodes_changes_one_instance(fresh_device: Device) -> None:
    """The whole list serves a client, so that each of its nodes has an instance."""
    device = fresh_device
    number = await made(device, group="pool")
    hosts = [f"198.51.{n // 250}.{n % 250 + 1}" for n in range(2000)]
    serve(device, *(link(f"n{n}", host=host) for n, host in enumerate(hosts)))
    await refreshed(device, number)
    await device.bench.rules.create(rule("10.0.0.5", "Group_pool"))
    await device.bench.rules.create(rule("10.0.0.6", "n7"))
    await device.bench.agree()
    before = difference_applied(device.bench.netd.plan)
    assert len(before.instances) == 2000
    serve(
        device,
        *(link(f"n{n}", "other" if n == 7 else "p", host) for n, host in enumerate(hosts)),
    )
    answer = await refreshed(device, number)
    assert (answer["refreshed"]["changed"], answer["refreshed"]["total"]) == (1, 2000)
    await device.bench.agree()
    change = difference(before, device.bench.netd.plan)
    assert [name for name in (*TABLES, *SINGLES) if getattr(change, name)] == ["instances"]
    assert [*change.instances.put] == [f"node:{nodes(device)['n7']}"]
    assert not change.instances.drop


async def test_names_that_others_have_get_a_number(device: Device) -> None:
    await device.bench.nodes.create(node("hk"))
    number = await made(device)
    serve(device, link("hk"))
    await refreshed(device, number)
    assert {*nodes(device)} == {"hk", "hk 2"}
    # It is renamed there, and follows, although it has a number here.
    serve(device, link("jp"))
    await refreshed(device, number)
    assert {*nodes(device)} == {"hk", "jp"}


async def test_a_used_node_that_is_gone_is_kept_and_blocked(device: Device) -> None:
    number = await made(device)
    serve(device, link("hk"), link("jp", host="198.51.100.8"), link("us", host="198.51.100.9"))
    await refreshed(device, number)
    before = nodes(device)
    await device.bench.rules.create(rule("10.0.0.5", "hk"))
    serve(device, link("us", host="198.51.100.9"))
    answer = await refreshed(device, number)
    assert fates(answer) == {"us": "same", "hk": "kept", "jp": "deleted"}
    assert nodes(device) == {"hk": before["hk"], "us": before["us"]}
    row = await shown(device, number)
    assert (row["nodes"], row["nodes_gone"]) == (2, 1)
    problems = [*device.subscriptions.problems()]
    assert [each.code for each in problems] == ["subscription-nodes-gone"]
    why = (
        await device.client.get(
            "/ops/explain", params={"client": "10.0.0.5", "destination": "example.com"}
        )
    ).json()
    assert "gone from the list" in json.dumps(why)
    assert not any("198.51.100.7" in str(each) for each in device.bench.netd.plan.instances)
    # It comes back.
    serve(device, link("hk"), link("us", host="198.51.100.9"))
    assert fates(await refreshed(device, number)) == {"hk": "changed", "us": "same"}
    assert [*device.subscriptions.problems()] == []


async def test_a_node_that_is_gone_is_deleted_if_that_is_set(device: Device) -> None:
    number = await made(device, gone="delete")
    serve(device, link("hk"), link("jp", host="198.51.100.8"))
    await refreshed(device, number)
    await device.bench.rules.create(rule("10.0.0.5", "hk"))
    serve(device, link("jp", host="198.51.100.8"))
    answer = await refreshed(device, number)
    assert fates(answer) == {"jp": "same", "hk": "deleted"}
    assert "10.0.0.5" in answer["msg"] or "blocked" in answer["msg"]
    assert {*nodes(device)} == {"jp"}


async def test_a_new_node_never_takes_over_what_names_a_node_that_is_gone(device: Device) -> None:
    bench = device.bench
    for name in ("hk", "jp", "us"):
        await bench.nodes.create(node(name))
    await bench.rules.create(rule("10.0.0.5", "hk"))
    await bench.groups.create("mine", GroupDraft(members=("jp",)))
    await bench.nodes.delete_many([nodes(device)[name] for name in ("hk", "jp", "us")])
    number = await made(device)
    serve(device, link("hk"), link("jp", host="198.51.100.8"), link("us", host="198.51.100.9"))
    await refreshed(device, number)
    assert {*nodes(device)} == {"hk 2", "jp 2", "us"}
    # A node that is renamed there gets no such name either.
    serve(device, link("hk 2"), link("jp", host="198.51.100.8"), link("hk", host="198.51.100.9"))
    await refreshed(device, number)
    assert {*nodes(device)} == {"hk 2", "jp 2", "hk 3"}


async def test_a_rule_that_lost_its_node_blocks_when_the_list_has_it_again(device: Device) -> None:
    number = await made(device, gone="delete")
    serve(device, link("hk"), link("jp", host="198.51.100.8"))
    await refreshed(device, number)
    # It is renamed here, so that a new one there may have the name that a rule names.
    await device.bench.nodes.revise(nodes(device)["hk"], {"name": "best"}, ())
    await device.bench.rules.create(rule("10.0.0.5", "best"))
    serve(device, link("best", host="198.51.100.10"), link("jp", host="198.51.100.8"))
    await refreshed(device, number)
    assert {*nodes(device)} == {"best 2", "jp"}
    assert device.bench.ledger.state.node_named("best") is None


async def test_names_that_all_look_the_same_are_numbered_one_after_the_other(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    there = Looks.__contains__

    def contains(looks: Looks, name: object) -> bool:
        tried.append(name)
        return there(looks, name)

    monkeypatch.setattr(Looks, "__contains__", contains)
    names = ["".join(each) for each in product("Il1", repeat=4)]
    number = await made(device)
    serve(device, *(link(name, port=1000 + place) for place, name in enumerate(names)))
    answer = await refreshed(device, number)
    assert answer["refreshed"]["added"] == len(names)
    assert len(tried) <= 2 * len(names)


async def test_a_name_that_no_target_can_have_is_passed_over_alone(device: Device) -> None:
    number = await made(device)
    serve(device, link("lnterface:y"), link("jp", host="198.51.100.8"))
    answer = await refreshed(device, number)
    assert fates(answer) == {"jp": "added", "lnterface:y": "passed"}
    assert answer["refreshed"]["passed_over"] == 1
    # A node that is renamed so keeps the name that it has.
    serve(device, link("lnterface:x", host="198.51.100.8"))
    assert fates(await refreshed(device, number)) == {"jp": "same"}


async def test_filters_and_names(device: Device) -> None:
    number = await made(
        device, include="^(hk|jp)", exclude="(?i)expire", rename={"-(\\d+)$": " \\1", "^": "s "}
    )
    serve(
        device,
        link("hk-01"),
        link("jp-02", host="198.51.100.8"),
        link("us-03", host="198.51.100.9"),
        link("hk Expire 2026", host="198.51.100.10"),
    )
    answer = await refreshed(device, number)
    assert {*nodes(device)} == {"s hk 01", "s jp 02"}
    assert answer["refreshed"]["passed_over"] == 2
    reasons = {each["name"]: each["reason"] for each in answer["nodes"] if each["reason"]}
    assert {*reasons} == {"us-03", "hk Expire 2026"}


async def test_another_renaming_gives_nodes_their_names_anew(device: Device) -> None:
    """Past fault: a name that a former `rename` had given counted as the operator's own, and stayed
    whatever the list and the subscription said later.
    """
    bench = device.bench
    await bench.nodes.create(node("a jp"))
    number = await made(device, rename={"^": "s "}, group="seller", via="DIRECT")
    rows = [link("hk"), link("jp", host="198.51.100.8"), link("us", host="198.51.100.9")]
    serve(device, *rows, link("u-s", host="198.51.100.10"))
    await refreshed(device, number)
    before = nodes(device)
    await bench.nodes.revise(before["s us"], {"name": "mine"}, ())
    await bench.rules.create(rule("10.0.0.5", "s hk"))
    fields = {"rename": {"^": "a ", "-": ""}, "group": "other", "via": "s hk"}
    patched = await send(device, "PATCH", f"/{number}", fields)
    assert patched.json()["via"] == "a hk", patched.text
    after = {"a hk": "s hk", "a jp 2": "s jp", "a us": "s u-s", "mine": "s us"}
    own = {"a jp": before["a jp"]}
    assert nodes(device) == {new: before[old] for new, old in after.items()} | own
    assert {each.group for each in bench.nodes.list()} == {"", "other"}
    assert [each.target_node for each in bench.rules.list()] == ["a hk"]
    await bench.agree()
    # They go on to follow the list.
    await send(device, "PATCH", f"/{number}", {"rename": {"^": "b "}})
    serve(device, link("hongkong"), *rows[1:], link("u-s", host="198.51.100.10"))
    answer = await refreshed(device, number)
    assert {*nodes(device)} == {"b hongkong", "b jp", "b u-s", "mine", "a jp"}
    assert fates(answer)["b hongkong"] == "renamed"
    assert [each.target_node for each in bench.rules.list()] == ["b hongkong"]


async def test_a_renaming_that_gives_a_node_no_name_is_refused(device: Device) -> None:
    """Past faults: it was stored, and the node got a name that none may have, such as an empty one,
    or kept its name, which counted as the operator's own from then on: no corrected renaming
    reached it.
    """
    number = await made(device, rename={"^": "s "})
    serve(device, link("hk"), link("jp", host="198.51.100.8"))
    await refreshed(device, number)
    before = nodes(device)
    await device.bench.nodes.revise(before["s jp"], {"name": "mine"}, ())
    for pattern, given in (
        ("^", "lnterface:"),
        ("^", "a,"),
        ("^", "a\u200b"),
        ("^", "x" * 63),
        (".*", ""),
        ("hk", "DIRECT"),
    ):
        refused = await send(device, "PATCH", f"/{number}", {"rename": {pattern: given}})
        (error,) = refused.json()["errors"]
        assert (refused.status_code, error["code"]) == (400, "rename-unsuitable"), given
        assert (error["pointer"], error["values"]["name"]) == ("/rename", "s hk")
    assert {*nodes(device)} == {"s hk", "mine"}
    await send(device, "PATCH", f"/{number}", {"rename": {"^": "a "}})
    assert nodes(device) == {"a hk": before["s hk"], "mine": before["s jp"]}


async def test_a_node_that_gets_no_name_there_follows_its_next_one(device: Device) -> None:
    """Past fault: a node that was renamed there to a name that none can have kept its name, as was
    meant, and also when the list had a suitable one again.
    """
    number = await made(device)
    serve(device, link("hk"))
    await refreshed(device, number)
    before = nodes(device)
    for name, here in (("DlRECT", "hk"), ("hongkong", "hongkong"), ("DlRECT", "hongkong")):
        serve(device, link(name))
        await refreshed(device, number)
        assert nodes(device) == {here: before["hk"]}
    await send(device, "PATCH", f"/{number}", {"rename": {"^": "a "}})
    assert nodes(device) == {"a hongkong": before["hk"]}


@pytest.mark.parametrize(
    ("rename", "there"),
    [
        ({}, "DIRECT"),
        ({}, "Group_hk"),
        ({}, "Interface:hk"),
        ({}, ","),
        ({}, ""),
        ({"new": ""}, "new"),
        ({"new": "a,b"}, "new"),
        ({"new": "x" * 65}, "new"),
        ({"new": "DIRECT"}, "new"),
        ({"new": "jp"}, "new"),
    ],
)
async def test_an_unsuitable_name_there_loses_no_node(
    device: Device, rename: dict[str, str], there: str
) -> None:
    """Past fault: a node with the same configuration counted as gone, and its clients were
    blocked, once it had a name there that no node may have, or that a renaming made such a name
    or another node's.
    """
    host = f"{'long.' * 12}test"  # server:port is too long for a name
    number = await made(device, rename=rename)
    serve(device, link("jp", host="198.51.100.8"), link("hk", host=host))
    await refreshed(device, number)
    before = nodes(device)
    await device.bench.rules.create(rule("10.0.0.5", "hk"))
    serve(device, link("jp", host="198.51.100.8"), link(there, host=host))
    answer = await refreshed(device, number)
    assert (answer["refreshed"]["gone"], answer["refreshed"]["total"]) == (0, 2)
    assert {*nodes(device).values()} == {*before.values()}
    (kept,) = (each for each in device.bench.nodes.list() if each.id == before["hk"])
    assert [each.target_node for each in device.bench.rules.list()] == [kept.name]
    # Another password with the name there: it is found by its server.
    serve(device, link("jp", host="198.51.100.8"), link(there, "other", host))
    assert fates(await refreshed(device, number))[kept.name] == "changed"
    # It follows its next name there.
    serve(device, link("jp", host="198.51.100.8"), link("hongkong", "other", host))
    await refreshed(device, number)
    assert nodes(device) == {"jp": before["jp"], "hongkong": before["hk"]}
    await device.bench.agree()


async def test_a_list_of_unsuitable_names_alone_changes_nothing(device: Device) -> None:
    number = await made(device)
    serve(device, link("hk"))
    await refreshed(device, number)
    before = device.bench.ledger.state
    serve(device, link("DIRECT", host="198.51.100.8"), link("lnterface:x", host="198.51.100.9"))
    answer = await refreshed(device, number)
    assert (answer["is_refreshed"], answer["reason_coded"]["code"]) == (False, "subscription-empty")
    assert device.bench.ledger.state is before


async def test_nodes_that_a_renaming_gives_one_name_are_numbered(device: Device) -> None:
    number = await made(device, rename={"-.*": ""})
    serve(device, link("hk-a"), link("hk-b", host="198.51.100.8"))
    await refreshed(device, number)
    before = nodes(device)
    assert {*before} == {"hk", "hk 2"}
    serve(device, link("hk-b", host="198.51.100.8"), link("hk-a"))
    assert {*fates(await refreshed(device, number)).values()} == {"same"}
    assert nodes(device) == before


async def test_another_order_of_a_renaming_is_stored(device: Device) -> None:
    """Past fault: nodes got their names by the new order, and the old one stayed."""
    number = await made(device, rename={"a": "b", "b": "c"}, via="DIRECT")
    serve(device, link("a"))
    await refreshed(device, number)
    assert {*nodes(device)} == {"c"}
    await send(device, "PATCH", f"/{number}", {"rename": {"b": "c", "a": "b"}})
    assert {*nodes(device)} == {"b"}
    assert [*device.bench.ledger.state.subscriptions[number].rename] == ["b", "a"]
    await device.bench.agree()


async def test_a_list_of_ever_new_nodes_never_runs_out_of_ids(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: once 2^26 ids had been given, no node could be added any more."""
    monkeypatch.setattr(number_allocation, "ENGINE_NUMBER_MAX", 12)
    monkeypatch.setattr(number_allocation, "NODES_MAX", 4)
    own = await device.bench.nodes.create(node("own"))
    number = await made(device, gone="delete")
    seen: list[set[int]] = []
    for turn in range(6):
        serve(
            device,
            *(link(f"n{turn}{n}", host=f"198.51.100.{10 + 10 * turn + n}") for n in range(1, 5)),
        )
        assert (await refreshed(device, number))["refreshed"]["added"] == 4
        seen.append({*nodes(device).values()} - {own.value.id})
        assert len(seen[-1]) == 4
        assert max(seen[-1]) <= 12
        assert turn == 0 or not seen[-1] & seen[-2], "none that became free just now"
    await device.bench.agree()


async def test_a_name_that_replacements_make_longer_and_longer_is_passed_over(
    device: Device,
) -> None:
    times = "\\0" * 250
    # Three patterns of these would make 1 GB of a name of 64 characters.
    number = await made(device, rename={".": times, "(.)": times, "^": times, "a|b": times})
    serve(device, link("a" * 64))
    answer = await refreshed(device, number)
    assert fates(answer) == {}
    assert not answer["is_refreshed"]
    assert len(replaced({".": times, "(.)": times}, "a" * 64)) == 64 * 250


async def test_a_list_cannot_name_a_server_of_a_lan(device: Device) -> None:
    number = await made(device)
    serve(device, link("hk"), link("lan", host="10.0.0.9"), link("own", host="203.0.113.2"))
    answer = await refreshed(device, number)
    assert {*nodes(device)} == {"hk"}
    assert answer["refreshed"]["passed_over"] == 2


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "subscription-empty"),
        (b"<html><body>Not found</body></html>", "subscription-empty"),
        (b'{"error": "no such user"}', "subscription-empty"),
        (b"\xff\xfe\x00\x01", "subscription-no-text"),
        (b"\x1f\x8b\x08garbage", "subscription-no-text"),
        (b"proxies:\n", "subscription-empty"),
    ],
)
async def test_a_list_without_nodes_changes_nothing(
    device: Device, content: bytes, code: str
) -> None:
    number = await made(device)
    serve(device, link("hk"))
    await refreshed(device, number)
    before = device.bench.ledger.state
    device.bench.netd.page = lambda _: PageFetched(content=content)
    answer = await refreshed(device, number)
    assert not answer["is_refreshed"]
    assert answer["reason_coded"]["code"] == code
    assert device.bench.ledger.state is before
    row = await shown(device, number)
    assert row["last"]["error"] == answer["reason"]
    assert row["last"]["refreshed"]["total"] == 1


async def test_a_failure_is_one_event_and_its_end_another(
    device: Device,
) -> None:
    number = await made(device)
    device.bench.netd.page = lambda _: PageFetched(reason=say("page-status", status=500))
    before = len(device.notices)
    assert (await refreshed(device, number))["reason"] == "the server answers with the status 500"
    await refreshed(device, number)
    serve(device, link("hk"))
    await refreshed(device, number)
    found = [each.event.code for each in device.notices[before:]]
    assert found == ["failed", "again", "refreshed"]


async def test_a_dry_run_changes_and_records_nothing(device: Device) -> None:
    number = await made(device)
    serve(device, link("hk"))
    before = device.bench.ledger.state
    await device.journal.flush()
    recorded = await device.journal.latest(9)
    answer = await refreshed(device, number, dry_run=True)
    await device.journal.flush()
    assert (answer["msg"], await device.journal.latest(9)) == ("", recorded)
    assert fates(answer) == {"hk": "added"}
    assert device.bench.ledger.state is before
    assert (await shown(device, number))["last"]["at"] == ""


async def test_quota_and_interval_are_read_from_the_answer(device: Device) -> None:
    number = await made(device, is_enabled=True)
    serve(
        device,
        link("hk"),
        **{
            "subscription-userinfo": "upload=5; download=90; total=100; expire=1763938720",
            "profile-update-interval": "12",
        },
    )
    await refreshed(device, number)
    row = await shown(device, number)
    assert row["quota"] == {"used": 95, "total": 100, "expires_at": "2025-11-23T22:58:40Z"}
    assert row["next_at"] == "2025-11-21T10:58:40Z"
    codes = [each.code for each in device.subscriptions.problems()]
    assert codes == ["subscription-quota-low"]
    device.now += 86_400
    codes = [each.code for each in device.subscriptions.problems()]
    assert codes == ["subscription-quota-low", "subscription-expires"]


async def test_the_request_leaves_by_its_target(device: Device) -> None:
    await device.bench.nodes.create(node("tokyo"))
    serve(device, link("hk"))
    for name, via in {"a": "DIRECT", "b": "tokyo", "c": "Interface:wan2"}.items():
        headers = {"X-Key": "k"}
        number = await made(device, name=name, via=via, headers=headers, user_agent="clash")
        await refreshed(device, number, dry_run=True)
    direct, by_node, by_wan = device.bench.netd.pages_asked[-3:]
    assert direct.paths == (KernelPath(mark=MARK_DIRECT, resolver=direct.paths[0].resolver),)
    assert isinstance(by_node.paths[0], NodePath)
    assert by_wan.paths[0].mark not in (0, MARK_DIRECT)
    assert direct.headers == {"User-Agent": "clash", "X-Key": "k"}


async def test_a_target_that_is_gone_fetches_nothing(device: Device) -> None:
    made_node = await device.bench.nodes.create(node("tokyo"))
    number = await made(device, via="tokyo")
    await device.bench.nodes.delete(made_node.value.id)
    before = len(device.bench.netd.pages_asked)
    answer = await refreshed(device, number)
    assert answer["reason_coded"]["code"] == "via-gone"
    assert len(device.bench.netd.pages_asked) == before


async def test_a_refresh_is_one_change_that_can_be_undone(device: Device) -> None:
    number = await made(device)
    serve(device, link("hk"), link("jp", host="198.51.100.8"))
    await refreshed(device, number)
    serve(device, link("us", host="198.51.100.9"))
    await refreshed(device, number)
    assert {*nodes(device)} == {"us"}
    revision = device.bench.ledger.revision
    undone = await device.client.post(f"/ops/changes/{revision}/undo", json={}, headers=ASKS)
    assert undone.status_code == 200, undone.text
    assert {*nodes(device)} == {"hk", "jp"}
    assert "s3cret" not in (await device.client.get("/ops/changes")).text


async def meanwhile(device: Device, monkeypatch: pytest.MonkeyPatch, *sent: Any) -> list[str]:
    """Have a request be answered while the first page is fetched; return the URLs of all pages."""
    urls: list[str] = []
    fetch = device.bench.netd.fetch_page

    async def fetch_page(asked: FetchPage) -> PageFetched:
        urls.append(asked.url)
        page = await fetch(asked)
        if len(urls) == 1:
            response = await send(device, *sent)
            assert response.status_code == 200, response.text
        return page

    monkeypatch.setattr(device.bench.netd, "fetch_page", fetch_page)
    return urls


async def test_a_list_that_became_another_is_fetched_anew(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await made(device)
    serve(device, link("hk"), link("jp", host="198.51.100.8"))
    other = "https://other.example.com/"
    urls = await meanwhile(
        device, monkeypatch, "PATCH", f"/{number}", {"url": other, "include": "jp"}
    )
    await refreshed(device, number)
    assert urls == [URL, other]
    assert {*nodes(device)} == {"jp"}
    assert (await shown(device, number))["last"]["refreshed"]["added"] == 1


async def test_a_subscription_may_be_deleted_while_its_list_is_fetched(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await made(device)
    serve(device, link("hk"))
    urls = await meanwhile(device, monkeypatch, "DELETE", f"/{number}")
    response = await send(device, "POST", f"/{number}/refresh", {"dry_run": False})
    assert (response.status_code, len(urls)) == (404, 1)
    assert nodes(device) == {}
    assert not device.notices


async def test_nodes_stay_or_go_with_their_subscription(device: Device) -> None:
    serve(device, link("hk"))
    number = await made(device)
    await refreshed(device, number)
    await send(device, "DELETE", f"/{number}")
    (kept,) = device.bench.nodes.list()
    assert (kept.name, kept.subscription, kept.gone_at) == ("hk", 0, "")
    serve(device, link("jp", host="198.51.100.8"))
    number = await made(device)
    await refreshed(device, number)
    await send(device, "DELETE", f"/{number}?nodes=true")
    assert {*nodes(device)} == {"hk"}


async def test_nodes_follow_to_another_group(device: Device) -> None:
    number = await made(device, group="asia")
    serve(device, link("hk"), link("jp", host="198.51.100.8"))
    await refreshed(device, number)
    await device.bench.nodes.revise(nodes(device)["jp"], {"group": "mine"}, ())
    await send(device, "PATCH", f"/{number}", {"group": "east"})
    groups = {each.name: each.group for each in device.bench.nodes.list()}
    assert groups == {"hk": "east", "jp": "mine"}


# --- The clock. ----------------------------------------------------------------------------------


async def turn(device: Device, after: float = 0.0) -> int:
    """Look some seconds later, and return the number of lists that were fetched."""
    device.now += after
    before = len(device.bench.netd.pages_asked)
    device.subscriptions.step()
    await device.subscriptions.idle()
    return len(device.bench.netd.pages_asked) - before


def sees(device: Device, state: str = "running", pair_role: str | None = None) -> None:
    device.subscriptions.look(
        Status(state=state, revision=1, pair_role=pair_role)  # type: ignore[arg-type]
    )


async def test_due_lists_are_fetched_by_the_active_box_alone(device: Device) -> None:
    await made(device, interval_s=3600, is_enabled=True)
    serve(device, link("hk"))
    for state, role in (("stopped", None), ("running", "standby")):
        sees(device, state, role)
        assert await turn(device) == 0
    sees(device, "running", "active")
    assert await turn(device) == 1
    assert {*nodes(device)} == {"hk"}
    assert await turn(device, 3599) == 0
    assert await turn(device, 1) == 1


async def test_a_list_that_failed_is_tried_again_sooner(device: Device) -> None:
    number = await made(device, interval_s=86_400, is_enabled=True)
    sees(device)
    device.bench.netd.page = lambda _: PageFetched(reason=say("page-status", status=500))
    assert await turn(device) == 1
    assert await turn(device, RETRY_S - 1) == 0
    assert await turn(device, 1) == 1
    serve(device, link("hk"))
    assert await turn(device, RETRY_S) == 1
    assert (await shown(device, number))["last"]["error"] == ""
    assert await turn(device, RETRY_S) == 0


async def test_a_clock_that_is_set_back_puts_no_fetch_off(device: Device) -> None:
    await made(device, interval_s=3600, is_enabled=True)
    sees(device)
    serve(device, link("hk"))
    assert await turn(device) == 1
    assert await turn(device, -1_000_000) == 0
    assert await turn(device, 3600) == 1


async def test_a_change_by_the_clock_is_recorded(device: Device) -> None:
    await made(device, is_enabled=True)
    sees(device)
    serve(device, link("hk"))
    await turn(device)
    found = (await device.client.get("/ops/changes")).json()["data"]
    (latest,) = (each for each in found if each["revision"] == device.bench.ledger.revision)
    assert (latest["who"], latest["what"]) == ("egressd", "refresh seller")
