"""Sentences that keep their codes and values: nested, joined, and on a socket."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import msgspec
import pytest

from egressd.model.wording import (
    NONE,
    Coded,
    Coding,
    Sentence,
    as_sentence,
    as_text,
    coded,
    decoded,
    encoded,
    say,
    together,
)

OFFLINE = say("line-offline", name="l2tp_1", reason=say("own-line-disabled"))


class _Holder(msgspec.Struct, frozen=True):
    one: Sentence
    more: tuple[Sentence, ...] = ()
    named: dict[str, Sentence] = {}


class _Answer(Coding, frozen=True, kw_only=True):
    reason: Sentence
    reason_coded: Coded | None = None
    steps: tuple[Sentence, ...] = ()
    steps_coded: tuple[Coded, ...] = ()


def test_a_sentence_is_text_that_keeps_what_it_was_made_from() -> None:
    assert OFFLINE == "the line l2tp_1 is offline: the line is disabled"
    assert (OFFLINE.code, OFFLINE.values["name"]) == ("line-offline", "l2tp_1")
    inner = OFFLINE.values["reason"]
    assert isinstance(inner, Sentence)
    assert inner.code == "own-line-disabled"
    assert not NONE


def test_words_of_other_programs_have_no_code_of_their_own() -> None:
    assert as_sentence("") is NONE
    assert as_sentence(OFFLINE) is OFFLINE
    words = as_sentence("no buffer space")
    assert (words.code, words.values) == ("other", {"text": "no buffer space"})


def test_sentences_together_are_one_sentence() -> None:
    assert together([NONE]) is NONE
    assert together(["", OFFLINE]) is OFFLINE
    both = together([OFFLINE, say("no-lan")])
    assert both == f"{OFFLINE}; there is no LAN"
    assert both.values["parts"] == (OFFLINE, "there is no LAN")


@pytest.mark.parametrize("sentence", [OFFLINE, NONE, together([OFFLINE, OFFLINE])])
def test_a_sentence_crosses_a_socket_whole(sentence: Sentence) -> None:
    sent = _Holder(sentence, (sentence,), {"a": sentence})
    encoder = msgspec.msgpack.Encoder(enc_hook=encoded)
    decoder = msgspec.msgpack.Decoder(_Holder, dec_hook=decoded)
    found = decoder.decode(encoder.encode(sent))
    assert found == sent
    for each in (found.one, *found.more, *found.named.values()):
        assert coded(each) == coded(sentence)


def test_a_plain_text_is_read_as_a_sentence() -> None:
    text = msgspec.msgpack.encode({"one": "as an older process says it"})
    found = msgspec.msgpack.decode(text, type=_Holder, dec_hook=decoded)
    assert found.one == "as an older process says it"
    assert found.one.code == "other"


@pytest.mark.parametrize("wrong", [7, ["a"], {"code": "x"}, {"code": 1, "values": {}, "text": ""}])
def test_anything_else_is_no_sentence(wrong: object) -> None:
    body = msgspec.msgpack.encode({"one": wrong})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(body, type=_Holder, dec_hook=decoded)


def test_an_answer_has_its_sentences_also_for_programs() -> None:
    answer = _Answer(reason=OFFLINE, steps=(say("no-lan"),))
    assert msgspec.json.decode(msgspec.json.encode(answer, enc_hook=as_text)) == {
        "reason": "the line l2tp_1 is offline: the line is disabled",
        "reason_coded": {
            "code": "line-offline",
            "values": {
                "name": "l2tp_1",
                "reason": {
                    "code": "own-line-disabled",
                    "values": {},
                    "text": "the line is disabled",
                },
            },
            "text": "the line l2tp_1 is offline: the line is disabled",
        },
        "steps": ["there is no LAN"],
        "steps_coded": [{"code": "no-lan", "values": {}, "text": "there is no LAN"}],
    }
    assert _Answer(reason=NONE).reason_coded is None


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_a_copy_keeps_its_code_and_values(copied: Callable[[Sentence], Sentence]) -> None:
    made = copied(OFFLINE)
    assert (made, made.code, made.values) == (OFFLINE, OFFLINE.code, OFFLINE.values)
    reason = made.values["reason"]
    assert isinstance(reason, Sentence)
    assert reason.code == "own-line-disabled"
