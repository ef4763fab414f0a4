"""Passwords at their real cost."""

from __future__ import annotations

import asyncio
import resource
import time

import pytest
from argon2 import extract_parameters

from egressd.console.passwords import Passwords, same_code


@pytest.fixture(autouse=True)
def _cheap_hashes() -> None:
    """Not here."""


async def test_a_hash_matches_its_password_only() -> None:
    passwords = Passwords()
    hash_ = await passwords.hash("correct horse")
    assert hash_ != await passwords.hash("correct horse")
    assert await passwords.fits("correct horse", hash_)
    assert not await passwords.fits("correct hors", hash_)
    assert not await passwords.fits("correct horse", "no hash")
    assert await passwords.fits("pässwörd ✓", await passwords.hash("pässwörd ✓"))


async def test_a_hash_has_the_cost_recommended_by_owasp() -> None:
    parameters = extract_parameters(await Passwords().hash("x"))
    assert parameters.type.name == "ID"
    assert parameters.memory_cost >= 19 * 1024
    assert parameters.time_cost >= 2


async def test_concurrent_hashes_use_the_memory_of_one() -> None:
    passwords = Passwords()
    hash_ = await passwords.hash("x")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    await asyncio.gather(*(passwords.fits(f"guess {n}", hash_) for n in range(6)))
    assert time.perf_counter() - begin > 0.05
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 25 * 1024


def test_a_code_matches_in_any_case_and_spacing() -> None:
    assert same_code("abcd-efgh-2345", "ABCD-EFGH-2345")
    assert same_code(" ABCD EFGH 2345 ", "ABCD-EFGH-2345")
    assert not same_code("ABCD-EFGH-234", "ABCD-EFGH-2345")
    assert not same_code("", "ABCD-EFGH-2345")
    assert not same_code("ÄBCD-EFGH-2345\ud800", "ABCD-EFGH-2345")
