"""New names that could be confused with others are refused; existing ones stay."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from egressd.model.desired import Edit
from egressd.model.drafts import NodeBatch
from egressd.model.errors import Invalid
from egressd.model.nouns import Node

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench


CYRILLIC = "t\u043ekyo"
TAKEN = "name must not look like another's: there is a node tokyo already"
RESERVED = "name must not look like DIRECT or REJECT"


def old(key: int, name: str, group: str = "") -> Edit:
    """Return a node that an earlier egressd accepted."""
    config = '{"server": "198.51.100.7", "port": 1080}'
    node = Node(
        id=key, name=name, protocol="socks5", config_json=config, group=group, created_at=""
    )
    return Edit("nodes", key, node)


async def start_with(bench: Bench, *edits: Edit) -> None:
    await bench.store.begin(edits, bench.state.revision + 1)
    await bench.store.commit()
    await bench.start()


async def import_nodes(bench: Bench, text: str, **options: object) -> tuple[int, tuple[str, ...]]:
    given = {"replace": False, "group": "", "auto_name": False, "start_index": 1} | options
    outcome = await bench.nodes.import_rows("socks5", text, **given)  # type: ignore[arg-type]
    return outcome.imported, outcome.errors


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (CYRILLIC, TAKEN),
        ("toky\u200bo", "name must not contain U\\+200B, which cannot be seen"),
        ("t\u00f3kyo\u0301", "NFC"),
        ("\u202etokyo", "U\\+202E"),
        ("DIR\u0415CT", RESERVED),
        ("REJECT\u200b", RESERVED),
        ("Group\uff3fhk", RESERVED),
        ("lnterface:wan1", RESERVED),
    ],
)
async def test_confusable_names_of_nodes_are_refused(
    bench: Bench, make: Make, name: str, problem: str
) -> None:
    await bench.add_node("tokyo")
    other = await bench.add_node("osaka")
    with pytest.raises(Invalid, match=problem):
        await bench.nodes.create(make.node(name))
    with pytest.raises(Invalid, match=problem):
        await bench.nodes.replace(other.id, make.node(name))
    imported, errors = await import_nodes(bench, f"198.51.100.1,1080,u,p,{name}")
    assert imported == (1 if problem == "NFC" else 0)  # imports normalise it
    is_seen_as_tokyo = "cannot be seen" in problem or "202E" in problem  # which exists
    assert len(errors) == (0 if is_seen_as_tokyo else 1 - imported)
    await bench.agree()


@pytest.mark.parametrize("name", ["🇭🇰 香港 01", "❤️", "👨‍👩‍👧", "Москва", "Zürich", "tokyo 1"])
async def test_names_in_all_scripts_are_accepted(bench: Bench, make: Make, name: str) -> None:
    await bench.add_node("tokyo")
    made = (await bench.nodes.create(make.node(name, group=name))).value
    assert (made.name, made.group) == (name, name)
    assert await import_nodes(bench, f"198.51.100.1,1080,u,p,{name} b") == (1, ())


async def test_a_node_may_be_renamed_to_a_name_like_its_own(bench: Bench, make: Make) -> None:
    node = await bench.add_node("hk-01")
    await bench.nodes.replace(node.id, make.node("hk-0l"))
    assert [each.name for each in bench.nodes.list()] == ["hk-0l"]


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ("as\u0456a", "group must not look like another's: there is a group asia already"),
        ("a\u2060b", "group must not contain U\\+2060"),
        ("DIRECT", "group must not look like DIRECT"),
        ("Gr\u043eup_x", "group must not look like DIRECT"),
    ],
)
async def test_confusable_names_of_groups_are_refused(
    bench: Bench, make: Make, group: str, problem: str
) -> None:
    node = await bench.add_node("tokyo", group="asia")
    with pytest.raises(Invalid, match=problem):
        await bench.nodes.create(make.node("osaka", group=group))
    with pytest.raises(Invalid, match=problem):
        await bench.nodes.replace(node.id, make.node("tokyo", group=group))
    with pytest.raises(Invalid, match=problem):
        await bench.nodes.update_many(NodeBatch(ids=(node.id,), group=group))
    for preview in (True, False):
        with pytest.raises(Invalid, match=problem):
            await import_nodes(bench, "198.51.100.1,1080", group=group, preview=preview)
    await bench.nodes.create(make.node("osaka", group="asia"))


async def test_confusable_names_within_an_import_are_refused(bench: Bench) -> None:
    rows = f"198.51.100.1,1080,u,p,tokyo\n198.51.100.2,1080,u,p,{CYRILLIC}"
    imported, errors = await import_nodes(bench, rows)
    assert (imported, errors) == (1, (f"line 2: {TAKEN}",))
    rows = f"198.51.100.2,1080,u,p,{CYRILLIC}\n198.51.100.1,1080,u,p,tokyo"
    imported, errors = await import_nodes(bench, rows, replace=True)
    assert (imported, errors) == (1, (f"line 1: {TAKEN}",))
    assert [each.name for each in bench.nodes.list()] == ["tokyo"]


async def test_an_automatic_name_is_not_confusable_with_another(bench: Bench) -> None:
    await bench.add_node("socks5_l")
    assert await import_nodes(bench, "198.51.100.1,1080", auto_name=True) == (1, ())
    assert [each.name for each in bench.nodes.list()] == ["socks5_l", "socks5_2"]


async def test_confusable_names_of_lines_and_proxy_services_are_refused(
    bench: Bench, make: Make
) -> None:
    await bench.lines.create(make.line("l2tp_1"))
    like = "name must not look like another's: there is a line l2tp_1 already"
    with pytest.raises(Invalid, match=like):
        await bench.lines.create(make.line("l2tp_l"))
    rows = "\n".join(f"vpn.example.net,u,p,s,l2tp_{n}," for n in "l21")
    outcome = await bench.lines.import_rows("l2tp", rows, auto_name=False, start_index=1)
    assert (outcome.imported, outcome.errors) == (2, (f"line 1: {like}",))
    await bench.services.create(make.service("office"))
    like = "name must not look like another's: there is a proxy service office already"
    with pytest.raises(Invalid, match=like):
        await bench.services.create(make.service("\u043effice", port=8090))
    outcome = await bench.services.import_rows("\u043effice,wan1,8090,,", replace=False)
    assert outcome.errors == (f"line 1: {like}",)
    await bench.services.replace(1, make.service("offlce"))
    await bench.services.create(make.service("DIRECT", port=8091))  # no rule names a proxy service


async def test_existing_confusable_names_are_kept(bench: Bench, make: Make) -> None:
    await start_with(bench, old(1, "tokyo"), old(2, CYRILLIC, "g\u200b"), old(3, "DIR\u0415CT"))
    await bench.rules.create(make.rule("10.0.0.5", CYRILLIC))
    await bench.nodes.replace(2, make.node(CYRILLIC, group="g\u200b", port=1081))
    await bench.nodes.update_many(NodeBatch(ids=(1,), group="g\u200b"))
    rows = f"198.51.100.9,1080,u,p,{CYRILLIC}"
    assert await import_nodes(bench, rows, replace=True) == (1, ())
    assert [each.name for each in bench.nodes.list()] == [CYRILLIC]
    with pytest.raises(Invalid, match="there is a node"):
        await bench.nodes.create(make.node("tokyo"))
    await bench.agree()


@pytest.mark.slow
async def test_a_new_name_is_checked_quickly_among_ten_thousand(bench: Bench, make: Make) -> None:
    await start_with(bench, *(old(key, f"node {key:05}") for key in range(1, 10_001)))
    draft = make.node("n\u043ede 00077")
    began = time.perf_counter()
    for _ in range(20):
        with pytest.raises(Invalid, match="there is a node node 00077 already"):
            await bench.nodes.create(draft)
    assert time.perf_counter() - began < 1.0, "each name was compared"
