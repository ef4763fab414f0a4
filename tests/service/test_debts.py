"""The rate limit for guesses."""

from __future__ import annotations

from egressd.service.debts import ACCOUNTS_MAX, Debts


def test_charges_add_up_and_decay_with_time() -> None:
    debts = Debts()
    for account in ("a", "a", "b"):
        debts.charge(account, 10, 100.0)
    debts.charge("b", 1, 100.0)
    assert (debts.of("a", 100.0), debts.of("b", 100.0), debts.of("c", 100.0)) == (20, 11, 0)
    assert (debts.of("a", 115.0), debts.of("b", 115.0)) == (5, 0)


def test_an_expired_account_is_kept_and_a_forgiven_one_is_not() -> None:
    debts = Debts()
    debts.charge("a", 1, 0.0)
    debts.charge("b", 1, 0.0)
    debts.forgive("b")
    assert "a" in debts
    assert "b" not in debts
    assert debts.of("b", 0.0) == 0


def test_the_least_recently_charged_account_is_evicted_first() -> None:
    debts = Debts()
    for number in range(ACCOUNTS_MAX):
        debts.charge(str(number), 10**6, 0.0)
    debts.charge("0", 10**6, 0.0)
    debts.charge("one more", 10**6, 0.0)
    assert len(debts) == ACCOUNTS_MAX
    assert "0" in debts
    assert "1" not in debts


def test_expired_accounts_are_evicted_before_others() -> None:
    debts = Debts()
    debts.charge("owes", 20, 0.0)
    for number in range(ACCOUNTS_MAX - 1):
        debts.charge(str(number), 10, 0.0)
    debts.charge("one more", 10, 15.0)
    assert len(debts) == 2
    assert debts.of("owes", 15.0) == 5
