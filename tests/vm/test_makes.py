"""One server of another make is enough, and none is too few: see `inside.makes`."""

from __future__ import annotations

from tests.vm.inside.makes import Make, left_out, missing

HERE = Make("here", {"sh": "dash", "/bin/sh": "dash"})
AWAY = Make("away", {"sh": "dash", "no-such-program": "one", "/no/such/program": "another"})


def test_what_is_not_here_is_left_out_for_what_is() -> None:
    assert list(missing((HERE, AWAY))) == []
    reasons = left_out((HERE, AWAY))
    assert reasons.keys() == {"away"}
    assert "away is left out" in reasons["away"]
    assert "lacks another and one: here covers" in reasons["away"]


def test_where_none_is_here_something_is_missing() -> None:
    assert left_out((AWAY, AWAY)) == {}
    (said,) = missing((AWAY, AWAY))
    assert "another and one, or another and one" in said


def test_where_all_are_here_all_are_run() -> None:
    assert list(missing((HERE, HERE))) == []
    assert left_out((HERE, HERE)) == {}
