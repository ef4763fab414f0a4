"""Rule sets: read back by an independent reader, and matched as sing-box matches."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.planner.rule_set import RULE_SETS_MAX, encode, sound_size

labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
domains = st.lists(labels, min_size=1, max_size=4).map(".".join)


class Trie:
    """The trie of a rule set, walked as sing's ``succinctSet.Has`` does."""

    def __init__(self, content: bytes) -> None:
        assert content[:3] == b"SRS"
        self._rest = zlib.decompress(content[4:])
        assert self._take(2) == b"\x01\x00"
        assert self._take(2) == b"\x02\x01"
        self.leaves = self._bits()
        self.ends = self._bits()
        self.labels = self._take(self._varint()).decode()
        assert self._rest == b"\xff\x00"

    def keys(self, node: int = 0, path: str = "") -> Iterator[str]:
        """Yield every key below a node."""
        if node in self.leaves:
            yield path
        position = self._begin(node)
        while position not in self.ends:
            label = position - sum(end < position for end in self.ends)
            yield from self.keys(label + 1, path + self.labels[label])
            position += 1

    def _begin(self, node: int) -> int:
        return 0 if node == 0 else sorted(self.ends)[node - 1] + 1

    def _take(self, count: int) -> bytes:
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def _varint(self) -> int:
        number, shift = 0, 0
        while True:
            (byte,) = self._take(1)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def _bits(self) -> set[int]:
        count = self._varint()
        words = struct.unpack(f">{count}Q", self._take(8 * count))
        return {
            64 * n + bit for n, word in enumerate(words) for bit in range(64) if word >> bit & 1
        }


@given(st.lists(domains, min_size=1, max_size=20))
def test_the_trie_holds_exactly_the_domains(names: list[str]) -> None:
    keys = list(Trie(encode(names)).keys())
    assert sorted(keys) == sorted(f"\n{name}"[::-1] for name in set(names))


def test_equal_domains_make_equal_files() -> None:
    assert encode(["b.test", "a.test", "b.test"]) == encode(["a.test", "b.test"])


@pytest.mark.parametrize("count", [1, 9, 10_000])
def test_a_file_of_many_domains_is_small(count: int) -> None:
    assert len(encode(f"host{n}.example.com" for n in range(count))) < 100 + 8 * count


@given(st.lists(domains, min_size=1, max_size=12))
def test_an_encoded_rule_set_is_sound(listed: list[str]) -> None:
    content = encode(listed)
    size = len(zlib.decompress(content[4:]))
    assert sound_size(content, RULE_SETS_MAX) == sound_size(content, size) == size
    assert sound_size(content, size - 1) == sound_size(content, 0) == 0


DOMAINS = encode(["a.test", "b.test", "example.org"])


def rewritten(change: Callable[[bytearray], None]) -> bytes:
    """Return the set with its rules changed, and packed as they should be."""
    rules = bytearray(zlib.decompress(DOMAINS[4:]))
    change(rules)
    return DOMAINS[:4] + zlib.compress(bytes(rules))


@given(st.data())
def test_every_label_of_a_sound_rule_set_has_an_end(data: st.DataObject) -> None:
    def change(rules: bytearray) -> None:
        for _ in range(data.draw(st.integers(1, 3))):
            rules[data.draw(st.integers(0, len(rules) - 1))] = data.draw(st.integers(0, 255))

    content = rewritten(change)
    if sound_size(content, RULE_SETS_MAX):
        trie = Trie(content)
        assert len(trie.ends) == len(trie.labels) + 1
        for node in range(len(trie.ends)):
            begin = trie._begin(node)
            while begin not in trie.ends:
                assert begin - node < len(trie.labels)
                begin += 1


BOMB = DOMAINS[:4] + zlib.compress(bytes(1 << 27))
PROCESSES = b"\x01\x00" + b"\x0a\x01\x0b/etc/shadow" + b"\xff\x00"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"SRS\x03",
        DOMAINS[:-1],
        DOMAINS + b"x",
        b"SRS\x02" + DOMAINS[4:],
        zlib.decompress(DOMAINS[4:]),
        BOMB,
        DOMAINS[:4] + zlib.compress(PROCESSES),
        rewritten(lambda rules: rules.extend(b"\x00")),
        rewritten(lambda rules: rules.__setitem__(0, 2)),
        rewritten(lambda rules: rules.__setitem__(-1, 1)),
        encode(["a b"]),
        encode(["A"]),
    ],
)
def test_other_bytes_are_unsound(content: bytes) -> None:
    assert sound_size(content, RULE_SETS_MAX) == 0
