"""Points of time as text."""

from __future__ import annotations

import pytest

from egressd.model.times import utc_seconds, utc_text


@pytest.mark.parametrize("seconds", [0, 1_709_164_800, 1_795_143_604])
def test_seconds_of_a_text_are_those_that_it_was_made_from(seconds: int) -> None:
    assert utc_seconds(utc_text(seconds)) == seconds


def test_a_text_of_another_form_has_no_seconds() -> None:
    with pytest.raises(ValueError, match="does not match"):
        utc_seconds("2026-11-20 03:00:04")
