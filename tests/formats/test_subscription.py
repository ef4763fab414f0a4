"""The head of a list's answer: quota and interval, as servers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.subscription import interval_of, quota_of
from egressd.model.subscriptions import INTERVAL_S, AccountQuota

EXPIRES = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        (
            "upload=1; download=2; total=3; expire=1767225600",
            AccountQuota(used=3, total=3, expires_at=EXPIRES),
        ),
        ("UPLOAD=1;Download=2", AccountQuota(used=3)),
        ("upload = 5.7 ; total= 1.5", AccountQuota(used=5, total=1)),
        ("download=1e3; total=2E+6", AccountQuota(used=1000, total=2_000_000)),
        ("upload=0; download=0; total=0; expire=0", AccountQuota(used=0)),
        ("expire=", AccountQuota()),
        ("upload=-5; total=x", AccountQuota()),
        ("total=999999999999999999e99", AccountQuota(total=2**53 - 1)),
        ("expire=999999999999999999e99", AccountQuota()),
        ("", AccountQuota()),
    ],
)
def test_a_quota_is_read_as_far_as_it_can_be(text: str, quota: AccountQuota) -> None:
    assert quota_of(text) == quota


@pytest.mark.parametrize(
    ("hours", "seconds"),
    [
        ("12", 43_200),
        (" 24 ", 86_400),
        ("1.5", 5400),
        ("0.01", 3600),
        ("999999", INTERVAL_S[1]),
        ("0", 0),
        ("-1", 0),
        ("nan", 0),
        ("1e9", 0),
        ("١٢", 0),
        ("", 0),
    ],
)
def test_an_interval_is_an_hour_at_least(hours: str, seconds: int) -> None:
    assert interval_of(hours) == seconds


@given(st.text(max_size=80))
def test_no_field_of_the_head_is_too_much(text: str) -> None:
    quota = quota_of(text)
    assert quota.used is None or 0 <= quota.used < 2**53
    assert 0 <= interval_of(text) <= INTERVAL_S[1]
