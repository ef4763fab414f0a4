"""The rate limit for guesses."""

from __future__ import annotations

from egressd.service.debts import ACCOUNTS_MAX, Debts


def test_guesses_add_up_and_time_pays() -> None:
    debts = Debts()
    for account in ("a", "a", "b"):
        debts.charge(account, 10, 100.0)
    debts.charge("b", 1, 100.0)
    assert (debts.of("a", 100.0), debts.of("b", 100.0), debts.of("c", 100.0)) == (20, 11, 0)
    assert (debts.of("a", 115.0), debts.of("b", 115.0)) == (5, 0)


def test_who_has_paid_is_remembered_and_who_is_forgiven_is_not() -> None:
    debts = Debts()
    debts.charge("a", 1, 0.0)
    debts.charge("b", 1, 0.0)
    debts.forgive("b")
    assert "a" in debts
    assert "b" not in debts
    assert debts.of("b", 0.0) == 0


def test_the_account_that_was_quiet_longest_is_forgotten_first() -> None:
    debts = Debts()
    for number in range(ACCOUNTS_MAX):
        debts.charge(str(number), 10**6, 0.0)
    debts.charge("0", 10**6, 0.0)
    debts.charge("one more", 10**6, 0.0)
    assert len(debts) == ACCOUNTS_MAX
    assert "0" in debts
    assert "1" not in debts


def test_who_has_paid_is_forgotten_before_anybody_who_owes() -> None:
    debts = Debts()
    debts.charge("owes", 20, 0.0)
    for number in range(ACCOUNTS_MAX - 1):
        debts.charge(str(number), 10, 0.0)
    debts.charge("one more", 10, 15.0)
    assert len(debts) == 2
    assert debts.of("owes", 15.0) == 5
