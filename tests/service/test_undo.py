"""Undoing changes: as changes of their own, with the ids of before, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.console import ChangeRecord
from egressd.model.errors import Failed, Missing, Obstructed
from egressd.model.undo import SECRETS, Reversal
from egressd.model.wording import NONE, as_sentence
from egressd.service.authorship import Author, authored
from egressd.service.undo import KINDS, objects
from egressd.store import edit_log

if TYPE_CHECKING:
    from egressd.model.drafts import Outcome
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench, OpenBench

pytestmark = pytest.mark.slow


async def reasons(bench: Bench, revision: int) -> tuple[str, ...]:
    with pytest.raises(Obstructed) as refused:
        await bench.undo.undo(revision)
    return refused.value.problems


async def test_undoing_a_deletion_gives_the_id_back(bench: Bench, make: Make) -> None:
    await bench.rules.create(make.rule("10.0.0.5"))
    rule = (await bench.rules.create(make.rule("10.0.0.6", comment="tv"))).value
    await bench.rules.delete(rule.id)
    await bench.rules.create(make.rule("10.0.0.7"))
    undone = await bench.undo.undo(3)
    assert bench.state.rules[rule.id] == rule
    assert bench.state.next_id("rules") == 4
    assert undone.revision == bench.state.revision == 5
    await bench.agree()


async def test_a_dry_run_tells_and_changes_nothing(bench: Bench, make: Make) -> None:
    await bench.add_node("tokyo")
    await bench.rules.create(make.rule("10.0.0.5", "tokyo"))
    before = bench.state
    would = await bench.undo.undo(1, dry_run=True)
    assert bench.state == before
    assert would.revision is None
    (node,) = would.objects
    assert (node.kind, node.id, node.name, node.action) == ("node", 1, "tokyo", "deleted")
    assert [str(note) for note in would.notes] == [
        "1 rule is blocked, as there is no node tokyo",
    ]


async def test_an_undo_tells_its_own_revision(
    bench: Bench, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: in a site it was that of a change that came while other members followed."""
    change = bench.ledger.change

    async def followed(build: Any, **options: Any) -> Outcome[Any]:
        outcome: Outcome[Any] = await change(build, **options)
        monkeypatch.undo()
        await bench.rules.create(make.rule("10.0.0.6"))
        return outcome

    await bench.rules.create(make.rule("10.0.0.5"))
    monkeypatch.setattr(bench.ledger, "change", followed)
    assert (await bench.undo.undo(1)).revision == 2
    assert bench.state.revision == 3


async def test_an_undo_is_undone_and_undone_again(bench: Bench, make: Make) -> None:
    undo = bench.undo
    rule = (await bench.rules.create(make.rule("10.0.0.5"))).value
    await undo.undo(1)
    assert not bench.state.rules
    assert await reasons(bench, 1) == ("change 1 was undone already, by change 2",)
    await undo.undo(2)
    assert bench.state.rules[1] == rule
    await undo.undo(1)
    assert not bench.state.rules
    listed = await undo.latest(10)
    assert [(each.revision, each.undoes, each.undone_by, each.can_undo) for each in listed] == [
        (4, 1, None, True),
        (3, 2, None, True),
        (2, 1, 3, False),
        (1, None, 4, False),
    ]


async def test_later_changes_of_other_fields_stay(bench: Bench, make: Make) -> None:
    await bench.rules.create(make.rule("10.0.0.5", comment="a"))
    await bench.rules.replace(1, make.rule("10.0.0.5", comment="b"))
    await bench.rules.set_enabled(1, False)
    await bench.undo.undo(2)
    rule = bench.state.rules[1]
    assert (rule.comment, rule.is_enabled) == ("a", False)


async def test_a_later_change_of_the_same_field_is_named(bench: Bench, make: Make) -> None:
    await bench.rules.create(make.rule("10.0.0.5", comment="a"))
    await bench.rules.replace(1, make.rule("10.0.0.5", comment="b"))
    await bench.rules.replace(1, make.rule("10.0.0.5", comment="c"))
    before = bench.state
    assert await reasons(bench, 2) == ("rule 10.0.0.5 has been changed by change 3: comment",)
    assert await reasons(bench, 1) == ("rule 10.0.0.5 has been changed by change 3",)
    assert bench.state == before


async def test_an_object_that_is_gone_is_named(bench: Bench, make: Make) -> None:
    await bench.rules.create(make.rule("10.0.0.5"))
    await bench.rules.set_enabled(1, False)
    await bench.rules.delete(1)
    assert await reasons(bench, 2) == ("rule 10.0.0.5 has been deleted by change 3",)


async def test_a_name_that_is_taken_by_now_is_named(bench: Bench, make: Make) -> None:
    await bench.add_node("tokyo")
    await bench.nodes.delete(1)
    await bench.add_node("osaka")
    await bench.nodes.replace(2, make.node("tokyo"))
    await bench.services.create(make.service("office"))
    await bench.services.delete(1)
    await bench.services.create(make.service("home"))
    taken = "cannot come back: {} has its name, address or port"
    assert await reasons(bench, 2) == (f"node tokyo {taken.format('node tokyo')}",)
    assert await reasons(bench, 6) == (
        f"proxy service office {taken.format('proxy service home')}",
    )


async def test_a_name_that_looks_like_another_by_now_is_refused(bench: Bench, make: Make) -> None:
    await bench.add_node("tokyo1")
    await bench.nodes.delete(1)
    await bench.add_node("tokyol")
    (problem,) = await reasons(bench, 2)
    assert problem.startswith("it would not be valid: node 'tokyo1'")


async def test_the_license_is_obeyed(bench: Bench, make: Make) -> None:
    await bench.services.create(make.service("office"))
    await bench.services.delete(1)
    bench.quota = 0
    assert await reasons(bench, 2) == ("that makes 1 proxy services, and the license allows 0",)


async def test_a_change_without_effect_by_now_is_refused(bench: Bench, make: Make) -> None:
    await bench.rules.create(make.rule("10.0.0.5", comment="a"))
    await bench.rules.replace(1, make.rule("10.0.0.5", comment="b"))
    await bench.rules.replace(1, make.rule("10.0.0.5", comment="a"))
    assert await reasons(bench, 2) == ("everything is as it was before change 2 already",)


async def test_a_failure_leaves_everything_as_it_was(bench: Bench, make: Make) -> None:
    await bench.rules.create(make.rule("10.0.0.5"))
    before = bench.state
    bench.store.failing = ["commit"]
    with pytest.raises(Failed):
        await bench.undo.undo(1)
    assert bench.state == before
    assert [each.revision for each in await bench.undo.latest(10)] == [1]
    await bench.agree()
    await bench.undo.undo(1)
    assert not bench.state.rules


async def test_unknown_changes_are_missing(bench: Bench) -> None:
    with pytest.raises(Missing, match="there is no change 7"):
        await bench.undo.undo(7)
    with pytest.raises(Missing, match="there is no change 7"):
        await bench.undo.show(7)


async def test_secrets_are_hidden_and_long_texts_cut(bench: Bench, make: Make) -> None:
    await bench.lines.create(make.line("l2tp_1", password="p4ss", secret="s3cret"))
    await bench.whitelist.put("\n".join(f"{n}.example.com" for n in range(100)), "", "DIRECT")
    shown = await bench.undo.show(1)
    fields = {each.name: (each.before, each.after) for each in shown.objects[0].fields}
    assert fields["password"] == fields["secret"] == (None, "***")
    assert fields["server"] == (None, "vpn.example.net")
    assert "p4ss" not in repr(shown)
    (whitelist,) = (await bench.undo.show(2)).objects
    (domains,) = whitelist.fields
    assert (whitelist.id, domains.before) == (None, "")
    assert isinstance(domains.after, str)
    assert domains.after.startswith("0.example.com\n1.")
    assert len(domains.after) == 101


async def test_the_author_is_kept(bench: Bench, make: Make) -> None:
    with authored(Author(who="token", source="10.0.0.9", what="POST /x")) as author:
        await bench.rules.create(make.rule("10.0.0.5"))
    await bench.rules.create(make.rule("10.0.0.6"))
    assert author.revision == 1
    second, first = await bench.undo.latest(10)
    assert (first.who, first.source, first.what) == ("token", "10.0.0.9", "POST /x")
    assert (second.who, second.what) == ("egressd", "")
    assert first.text == "rule 10.0.0.5 created"


async def test_the_log_outlives_a_restart(
    open_bench: OpenBench, tmp_path: object, make: Make
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.start()
        await bench.rules.create(make.rule("10.0.0.5"))
        await bench.rules.delete(1)
    async with open_bench(tmp_path) as bench:
        await bench.start()
        await bench.undo.undo(2)
        assert bench.state.rules[1].ip == "10.0.0.5/32"


def test_every_table_can_be_shown_and_has_its_secrets_named() -> None:
    """A new table needs its word, its secrets, and a label for conflicts, before it has changes."""
    tables = {*edit_log.TABLES} - {"numbers", "last_ids"}
    assert KINDS.keys() == tables
    assert SECRETS.keys() == tables


def test_fields_of_an_unknown_table_are_hidden() -> None:
    (shown,) = objects([Reversal("others", 1, None, {"name": "x", "url": "https://secret"})])
    assert (shown.kind, shown.name) == ("other", "x")
    assert {field.after for field in shown.fields} == {"***"}


async def test_records_of_an_earlier_state_have_no_revision(bench: Bench, make: Make) -> None:
    """A box that joins a site has counted revisions of its own before."""
    own = ChangeRecord(
        at="2020-01-01T00:00:00Z", who="token", source="", what="PUT /own", text=NONE, revision=1
    )
    bench.journal.note(own)
    with authored(Author(who="token", source="10.0.0.9", what="POST /x")) as author:
        await bench.rules.create(make.rule("10.0.0.5"))
    said = as_sentence("rule created, and a note")
    bench.journal.note(
        ChangeRecord(
            at=own.at, who="token", source="10.0.0.9", what="POST /x", text=said,
            revision=author.revision,
        )
    )  # fmt: skip
    listed = await bench.undo.latest(10)
    assert [(each.revision, each.what, each.text) for each in listed] == [
        (1, "POST /x", said),
        (None, "PUT /own", ""),
    ]
