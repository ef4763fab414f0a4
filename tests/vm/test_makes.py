"""One server of another make is enough, and none is too few: see `inside.makes`."""

from __future__ import annotations

from tests.vm.inside.makes import Make, left_out, missing

HERE = Make("here", {"sh": "dash", "/bin/sh": "dash"})
AWAY = Make("away", {"sh": "dash", "no-such-program": "one", "/no/such/program": "another"})


def test_a_missing_server_is_left_out_if_another_covers_it() -> None:
    assert list(missing((HERE, AWAY))) == []
    reasons = left_out((HERE, AWAY))
    assert reasons.keys() == {"away"}
    assert "away is left out" in reasons["away"]
    assert "lacks another and one: here covers" in reasons["away"]


def test_without_any_server_of_a_kind_it_is_reported_as_missing() -> None:
    assert left_out((AWAY, AWAY)) == {}
    (said,) = missing((AWAY, AWAY))
    assert "another and one, or another and one" in said


def test_with_all_servers_none_is_left_out() -> None:
    assert list(missing((HERE, HERE))) == []
    assert left_out((HERE, HERE)) == {}
