"""A site's new key, sealed for one member."""

from __future__ import annotations

from base64 import b64decode
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egressd.app.key_envelope import opened, sealed, signed
from egressd.app.site_authority import SiteAuthority, new_request
from egressd.model.errors import Failed
from egressd.store.sealing import KEY_BYTES, SiteSeal

OLD, NEW, OLDEST = (bytes([n]) * KEY_BYTES for n in (1, 2, 3))
OLD_ID, OLDEST_ID = SiteSeal(OLD).key_id, SiteSeal(OLDEST).key_id
AUTHORITY, OTHER = SiteAuthority.make("home"), SiteAuthority.make("home")
KEY, REQUEST = new_request()
CERTIFICATE = AUTHORITY.member(REQUEST, "egressd_a")
ENVELOPE = sealed(AUTHORITY, CERTIFICATE, NEW, site="home", replaces=(OLDEST_ID, OLD_ID))
CONTENT = ENVELOPE.split(".")[0]
SIGNATURE = b64decode(ENVELOPE.split(".")[1])


@pytest.mark.parametrize("own", [OLD_ID, OLDEST_ID])
def test_the_member_opens_its_envelope(own: str) -> None:
    assert opened(ENVELOPE, AUTHORITY.pem, KEY, site="home", own=own) == NEW
    assert signed(ENVELOPE, AUTHORITY.pem).replaces == (OLDEST_ID, OLD_ID)


def test_another_member_cannot_open_it() -> None:
    other, _ = new_request()
    with pytest.raises(Failed, match="for another member"):
        opened(ENVELOPE, AUTHORITY.pem, other, site="home", own=OLD_ID)


def test_an_envelope_is_for_one_site() -> None:
    with pytest.raises(Failed, match="does not replace"):
        opened(ENVELOPE, AUTHORITY.pem, KEY, site="away", own=OLD_ID)


def test_an_earlier_key_does_not_replace_a_later_one() -> None:
    with pytest.raises(Failed, match="does not replace"):
        opened(ENVELOPE, AUTHORITY.pem, KEY, site="home", own=SiteSeal(NEW).key_id)


def test_an_envelope_of_another_authority_is_refused() -> None:
    forged = sealed(OTHER, CERTIFICATE, NEW, site="home", replaces=(OLD_ID,))
    with pytest.raises(Failed, match="not signed by the site's authority"):
        opened(forged, AUTHORITY.pem, KEY, site="home", own=OLD_ID)


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_envelope_is_refused(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(ENVELOPE) - 1))
    damaged = ENVELOPE[:at] + data.draw(st.sampled_from("AZaz09+/=.é")) + ENVELOPE[at + 1 :]
    if damaged == ENVELOPE:
        return
    if damaged.split(".")[0] == CONTENT and _same_signature(damaged):
        return
    with pytest.raises(Failed, match="envelope in the database"):
        opened(damaged, AUTHORITY.pem, KEY, site="home", own=OLD_ID)


def _same_signature(damaged: str) -> bool:
    """True if the two texts in base64 are of the same bytes: a few last bits count for nothing."""
    with suppress(ValueError):
        return b64decode(damaged.split(".")[1], validate=True) == SIGNATURE
    return False


@pytest.mark.parametrize("text", ["", ".", "..", "e30=.", "bnVsbA==.AAAA", "é.é", "A" * 100_000])
def test_a_text_that_is_no_envelope_is_refused(text: str) -> None:
    with pytest.raises(Failed, match="envelope in the database is"):
        signed(text, AUTHORITY.pem)


def test_a_member_without_a_certificate_cannot_be_given_a_key() -> None:
    with pytest.raises(Failed, match="a member's certificate"):
        sealed(AUTHORITY, "none", NEW, site="home", replaces=())
