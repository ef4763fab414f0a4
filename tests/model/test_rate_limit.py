"""The rate limit for guesses."""

from __future__ import annotations

from egressd.model.rate_limit import ACCOUNTS_MAX, Gcra


def test_charges_add_up_and_decay_with_time() -> None:
    gcra = Gcra()
    for account in ("a", "a", "b"):
        gcra.charge(account, 10, 100.0)
    gcra.charge("b", 1, 100.0)
    assert (gcra.of("a", 100.0), gcra.of("b", 100.0), gcra.of("c", 100.0)) == (20, 11, 0)
    assert (gcra.of("a", 115.0), gcra.of("b", 115.0)) == (5, 0)


def test_an_expired_account_is_kept_and_a_forgiven_one_is_not() -> None:
    gcra = Gcra()
    gcra.charge("a", 1, 0.0)
    gcra.charge("b", 1, 0.0)
    gcra.forgive("b")
    assert "a" in gcra
    assert "b" not in gcra
    assert gcra.of("b", 0.0) == 0


def test_the_least_recently_charged_account_is_evicted_first() -> None:
    gcra = Gcra()
    for number in range(ACCOUNTS_MAX):
        gcra.charge(str(number), 10**6, 0.0)
    gcra.charge("0", 10**6, 0.0)
    gcra.charge("one more", 10**6, 0.0)
    assert len(gcra) == ACCOUNTS_MAX
    assert "0" in gcra
    assert "1" not in gcra


def test_expired_accounts_are_evicted_before_others() -> None:
    gcra = Gcra()
    gcra.charge("owes", 20, 0.0)
    for number in range(ACCOUNTS_MAX - 1):
        gcra.charge(str(number), 10, 0.0)
    gcra.charge("one more", 10, 15.0)
    assert len(gcra) == 2
    assert gcra.of("owes", 15.0) == 5
