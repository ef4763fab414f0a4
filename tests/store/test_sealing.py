"""Sealed texts are opened at their own place with the site's key, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.store.sealing import KEY_BYTES, SiteSeal

SEAL = SiteSeal(b"k" * KEY_BYTES)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS, TEXTS)
def test_a_sealed_text_is_opened_at_its_place(text: str, place: str) -> None:
    assert SEAL.open(SEAL.close(text, place), place) == text


@given(TEXTS.filter(lambda text: len(text) > 3))
def test_a_sealed_text_does_not_contain_the_text(text: str) -> None:
    assert text not in SEAL.close(text, "place")


@pytest.mark.parametrize(
    "stored",
    [
        SEAL.close("secret", "nodes/2/config_json"),
        SiteSeal(b"other key".ljust(KEY_BYTES)).close("secret", "nodes/1/config_json"),
        SEAL.close("secret", "nodes/1/config_json")[:-8],
        SEAL.close("secret", "nodes/1/config_json") + "*",
        "sealed:1:",
        "secret",
    ],
    ids=["of another row", "another key", "cut", "no base64", "nothing", "not sealed"],
)
def test_a_text_that_was_not_sealed_for_a_place_is_refused(stored: str) -> None:
    with pytest.raises(ValueError, match="nodes/1/config_json"):
        SEAL.open(stored, "nodes/1/config_json")


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SiteSeal(b"short")


def test_members_recognise_a_key_by_its_id() -> None:
    assert SEAL.key_id == SiteSeal(b"k" * KEY_BYTES).key_id
    assert SEAL.key_id != SiteSeal(b"l" * KEY_BYTES).key_id
