"""Certificate, token and password of several members, over a database of texts."""

from __future__ import annotations

import json
import ssl
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509

from egressd.app import tls
from egressd.app.certificate import make
from egressd.app.shared_access import AccessFollower, SharedCertificate
from egressd.console.sessions import ABSOLUTE_S, IDLE_S
from egressd.model.errors import Failed
from tests.app.site_members import (
    NO_SESSIONS,
    NO_TOKENS,
    OTHER_SEAL,
    SEAL,
    Item,
    Member,
    Texts,
    in_turns,
)


@pytest.fixture
def texts() -> Texts:
    return Texts()


@pytest.fixture
async def pair(texts: Texts, tmp_path: Path) -> tuple[Member, Member]:
    """Two members that have the first one's text."""
    made = Member(texts, tmp_path / "a", "of a"), Member(texts, tmp_path / "b", "of b")
    await in_turns(made)
    return made


async def test_a_later_member_takes_the_text_of_the_site(pair: tuple[Member, Member]) -> None:
    a, b = pair
    assert (a.item.text, b.item.text) == ("of a", "of a")


async def test_a_change_at_any_member_reaches_the_others(pair: tuple[Member, Member]) -> None:
    a, b = pair
    b.item.text = "changed at b"
    await in_turns(pair)
    assert a.item.text == b.item.text == "changed at b"
    a.item.text = "changed at a"
    await in_turns(pair)
    assert a.item.text == b.item.text == "changed at a"


async def test_a_change_of_a_service_that_does_not_run_counts(pair: tuple[Member, Member]) -> None:
    a, b = pair
    a.item.text = "reset"
    a.restart()
    await in_turns(pair)
    assert b.item.text == "reset"


async def test_of_two_changes_the_first_in_the_database_counts(pair: tuple[Member, Member]) -> None:
    a, b = pair
    a.item.text, b.item.text = "changed at a", "changed at b"
    await in_turns(pair)
    assert a.item.text == b.item.text == "changed at a"


async def test_members_keep_what_an_older_database_lacks(
    pair: tuple[Member, Member], texts: Texts
) -> None:
    a, b = pair
    older = dict(texts.rows)
    a.item.text = "reset"
    await in_turns(pair)
    for rows in (older, {}):
        texts.rows = dict(rows)
        await in_turns(reversed(pair))
        assert a.item.text == b.item.text == "reset"
        assert texts.rows["item"].version > older["item"].version


async def test_an_earlier_text_as_a_later_version_is_refused(
    pair: tuple[Member, Member], texts: Texts
) -> None:
    a, b = pair
    earlier = texts.rows["item"]
    a.item.text = "reset"
    await in_turns(pair)
    texts.rows["item"] = earlier._replace(version=9)
    with pytest.raises(Failed, match="seal"):
        await b.look()
    assert b.item.text == "reset"


async def test_a_member_with_the_former_key_writes_nothing(
    pair: tuple[Member, Member], texts: Texts
) -> None:
    a, b = pair
    texts.key_id = OTHER_SEAL.key_id
    a.item.text = "reset"
    await a.look()
    assert texts.rows["item"].version == 1
    a.seal = b.seal = OTHER_SEAL
    await in_turns(pair)
    assert b.item.text == "reset"
    assert "reset" not in texts.rows["item"].value


async def test_a_session_goes_on_at_all_members(pair: tuple[Member, Member], texts: Texts) -> None:
    a, b = pair
    secret = await a.log_in()
    await in_turns(pair)
    assert b.is_in(secret)
    assert "10.77.0.9" not in "".join(row.value for row in texts.rows.values())


async def test_a_session_ends_at_all_members(pair: tuple[Member, Member], texts: Texts) -> None:
    a, b = pair
    secret, other = await a.log_in(), await a.log_in()
    await in_turns(pair)
    await b.sessions.end(
        [each for each in b.sessions.current() if b.sessions.find("cookie", secret) == each]
    )
    await in_turns(reversed(pair))
    assert [member.is_in(secret) for member in pair] == [False, False]
    assert [member.is_in(other) for member in pair] == [True, True]
    assert len(texts.rows) == 2


async def test_a_use_at_one_member_keeps_a_session_at_the_others(
    pair: tuple[Member, Member],
) -> None:
    a, b = pair
    secret = await a.log_in()
    await in_turns(pair)
    for _ in range(5):
        a.now += IDLE_S // 2
        b.now = a.now
        assert b.is_in(secret)
        await in_turns(pair)
    assert a.is_in(secret)


async def test_a_use_that_others_do_not_hear_of_ends_no_session(
    pair: tuple[Member, Member],
) -> None:
    a, b = pair
    secret = await a.log_in()
    await in_turns(pair)
    a.now += IDLE_S - 60
    assert a.is_in(secret)
    a.now += 120
    b.now = a.now
    assert not b.is_in(secret)
    await b.look()
    await in_turns(pair)
    assert a.is_in(secret)
    assert b.is_in(secret)


async def test_a_session_that_ended_during_a_restart_stays_ended(
    pair: tuple[Member, Member],
) -> None:
    a, b = pair
    secret = await a.log_in()
    await in_turns(pair)
    a.restart()
    await a.sessions.open()
    assert a.is_in(secret)
    await b.sessions.end(b.sessions.current())
    await b.look()
    await a.look()
    assert not a.is_in(secret)


async def test_a_session_that_ends_while_the_database_is_away_stays_ended(
    pair: tuple[Member, Member], texts: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = pair[0]
    secret = await a.log_in()
    await in_turns(pair)

    async def away() -> dict[str, int]:
        raise Failed("use the site's database", "it is away")

    await a.sessions.end(a.sessions.current())
    with monkeypatch.context() as patched:
        patched.setattr(texts, "versions", away)
        with pytest.raises(Failed):
            await a.look()
    a.restart()
    await a.sessions.open()
    await in_turns(pair)
    assert [member.is_in(secret) for member in pair] == [False, False]
    assert "session" not in " ".join(texts.rows)


@pytest.mark.parametrize("ahead", [-3600, 3600])
async def test_a_wrong_clock_ends_no_session_elsewhere(
    pair: tuple[Member, Member], ahead: int
) -> None:
    a, b = pair
    secret = await a.log_in()
    b.now += ahead
    await in_turns(pair)
    assert a.is_in(secret)
    assert not b.is_in(secret)
    b.now = a.now
    await in_turns(pair)
    assert b.is_in(secret)
    b.now += ahead
    b.is_in(secret)
    await in_turns(pair)
    assert a.is_in(secret)


async def test_sessions_that_are_long_over_are_forgotten(
    pair: tuple[Member, Member], texts: Texts
) -> None:
    a, b = pair
    await a.log_in()
    await in_turns(pair)
    a.now += ABSOLUTE_S
    b.now = a.now
    await in_turns(pair)
    assert set(texts.rows) == {"item"}


async def test_a_member_that_restarts_hears_of_sessions_anew(
    pair: tuple[Member, Member],
) -> None:
    a, b = pair
    secret = await a.log_in()
    await in_turns(pair)
    b.restart()
    await b.sessions.open()
    assert not b.is_in(secret)
    await in_turns(reversed(pair))
    assert [member.is_in(secret) for member in pair] == [True, True]


async def test_a_new_password_ends_the_sessions_of_all_members(
    pair: tuple[Member, Member],
) -> None:
    a, b = pair
    former = [await member.log_in() for member in pair]
    await in_turns(pair)
    secret, session = a.sessions.prepare("cookie", "10.77.0.9", "browser")
    a.sessions.replace_all(session)
    a.item.text = "new hash"
    a.item.name = b.item.name = "password"

    async def adopt(text: str) -> None:
        b.sessions.clear()

    b.item.write = adopt  # type: ignore[method-assign]
    for _ in range(2):
        await in_turns(pair)
    for member in pair:
        assert member.is_in(secret)
        assert not any(member.is_in(one) for one in former)


def names(folder: Path) -> set[str]:
    found = x509.load_pem_x509_certificate((folder / tls.CERTIFICATE).read_bytes())
    extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return {str(each) for each in extension.value.get_values_for_type(x509.IPAddress)}


async def test_a_certificate_has_the_names_of_all_members(texts: Texts, tmp_path: Path) -> None:
    own = {"a": IPv4Address("10.77.0.2"), "b": IPv4Address("10.77.0.3")}
    followers: list[AccessFollower] = []
    serving: dict[str, ssl.SSLContext] = {}
    for name, address in own.items():
        folder = tmp_path / name
        folder.mkdir()
        make(folder / tls.CERTIFICATE, folder / tls.KEY, [address])
        serving[name] = tls.context(folder)
        item = SharedCertificate(folder, partial(list, [address]), partial(serving.get, name))
        followers.append(
            AccessFollower(
                texts, [item], folder / "record", lambda: SEAL, NO_SESSIONS, tokens=NO_TOKENS
            )
        )

    for follower in followers * 3:
        await follower.look()
    for name in own:
        assert names(tmp_path / name) >= {str(address) for address in own.values()}
    pems = [(tmp_path / name / tls.CERTIFICATE).read_text() for name in own]
    assert pems[0] == pems[1]
    for context in serving.values():
        assert served(context) == ssl.PEM_cert_to_DER_cert(pems[0])


def served(context: ssl.SSLContext) -> bytes | None:
    """Return the certificate that a server with this context sends."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server)
    there = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (here, there):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return here.getpeercert(binary_form=True)


async def test_a_certificate_is_given_with_its_key_or_not_at_all(
    texts: Texts, tmp_path: Path
) -> None:
    item = SharedCertificate(tmp_path, list, lambda: None)
    assert await item.read() == ""
    tls.context(tmp_path)
    assert len(json.loads(await item.read())) == 2
    other = tmp_path / "other"
    other.mkdir()
    tls.context(other)
    (other / tls.CERTIFICATE).replace(tmp_path / tls.CERTIFICATE)
    assert await item.read() == ""
    (other / tls.KEY).replace(tmp_path / tls.KEY)
    assert len(json.loads(await item.read())) == 2
    (tmp_path / tls.KEY).unlink()
    assert await item.read() == ""


async def test_an_item_that_cannot_be_read_delays_no_other(texts: Texts, tmp_path: Path) -> None:
    class Broken(Item):
        async def read(self) -> str:
            raise Failed("read it", "broken")

    broken, other = Broken(""), Item("text")
    broken.name = "broken"
    follower = AccessFollower(
        texts, [broken, other], tmp_path / "record", lambda: SEAL, NO_SESSIONS, tokens=NO_TOKENS
    )
    with pytest.raises(Failed, match="broken"):
        await follower.look()
    assert set(texts.rows) == {"item"}
