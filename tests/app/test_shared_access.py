"""Certificate, token and password of several members, over a database of texts."""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Collection, Iterable
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509

from egressd.app import tls
from egressd.app.certificate import make
from egressd.app.shared_access import AccessFollower, SharedCertificate
from egressd.model.errors import Failed
from egressd.store.postgres.shared_access import SharedText
from egressd.store.sealing import SiteSeal

SEAL = SiteSeal(bytes(32))
OTHER_SEAL = SiteSeal(hashlib.sha256(b"other").digest())


class Texts:
    """The site's database."""

    def __init__(self) -> None:
        self.rows: dict[str, SharedText] = {}
        self.key_id = SEAL.key_id

    async def versions(self) -> dict[str, int]:
        return {name: row.version for name, row in self.rows.items()}

    async def read(self, names: Collection[str]) -> list[SharedText]:
        return [self.rows[name] for name in names if name in self.rows]

    async def put(self, text: SharedText, *, after: int, key_id: str) -> bool:
        there = self.rows[text.name].version if text.name in self.rows else 0
        if (there, self.key_id) != (after, key_id):
            return False
        self.rows[text.name] = text
        return True

    async def close(self) -> None:
        pass


class Item:
    """A text in memory."""

    def __init__(self, text: str) -> None:
        self.name = "item"
        self.text = text

    async def read(self) -> str:
        return self.text

    async def write(self, text: str) -> None:
        self.text = text


class Member:
    """A member with one item."""

    def __init__(self, texts: Texts, folder: Path, text: str = "") -> None:
        self.item = Item(text)
        self.seal = SEAL
        self._texts, self._folder = texts, folder
        self.restart()

    def restart(self) -> None:
        record = self._folder / "record"
        self._folder.mkdir(exist_ok=True)
        self._follower = AccessFollower(self._texts, [self.item], record, lambda: self.seal)

    async def look(self) -> None:
        await self._follower.look()


@pytest.fixture
def texts() -> Texts:
    return Texts()


@pytest.fixture
async def pair(texts: Texts, tmp_path: Path) -> tuple[Member, Member]:
    """Two members that have the first one's text."""
    made = Member(texts, tmp_path / "a", "of a"), Member(texts, tmp_path / "b", "of b")
    await in_turns(made)
    return made


async def in_turns(members: Iterable[Member]) -> None:
    for member in [*members] * 2:
        await member.look()


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
        followers.append(AccessFollower(texts, [item], folder / "record", lambda: SEAL))

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
    follower = AccessFollower(texts, [broken, other], tmp_path / "record", lambda: SEAL)
    with pytest.raises(Failed, match="broken"):
        await follower.look()
    assert set(texts.rows) == {"item"}
