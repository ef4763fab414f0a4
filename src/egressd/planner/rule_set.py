"""sing-box's binary rule sets (``.srs``): many domains in a form that loads fast.

An instance reads the file in a few milliseconds, whereas it would take 120 ms to build the same
from 10,000 domains in its document; and the file is made once for all instances.

The format is sing-box's ``common/srs``: a magic, a version, and zlib over the rules. The domains of
a rule are a succinct trie (``common/domain`` of its library *sing*): the keys, read backwards and
sorted, as the level-order labels of their trie, a bitmap that ends each node's labels with a 1, and
a bitmap of the nodes at which a key ends.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterable
from typing import Final

_MAGIC: Final = b"SRS"
_VERSION: Final = 3
_ONE_DEFAULT_RULE: Final = b"\x01\x00"
"""The number of rules, and the type of the first."""
_DOMAINS: Final = b"\x02\x01"
"""The item *domain* of a rule, and the version of the trie in it."""
_END: Final = b"\xff\x00"
"""The end of a rule: no further items, and the rule is not inverted."""

RULE_SETS_MAX: Final = 1 << 26
"""Bytes of the unpacked rules of all rule sets: more than 100,000 domains take at any length. Rules
that are made to be long shrink to a thousandth of that in zlib's form."""
_LABELS: Final = re.compile(rb"[\n.0-9_a-z-]*\Z")

_DOMAIN_OR_BELOW: Final = "\n"
"""Prefix of a domain (so at the key's end): the domain itself matches, and all names below it."""


def encode(domains: Iterable[str]) -> bytes:
    """Return a rule set that matches `domains` and the names below them. They are in ASCII."""
    keys = sorted((_DOMAIN_OR_BELOW + domain)[::-1].encode() for domain in set(domains))
    leaves, ends, labels = _trie(keys)
    rules = _ONE_DEFAULT_RULE + _DOMAINS
    for words in (_words(leaves), _words(ends)):
        rules += _varint(len(words)) + struct.pack(f">{len(words)}Q", *words)
    rules += _varint(len(labels)) + labels + _END
    return _MAGIC + bytes([_VERSION]) + zlib.compress(rules, 9)


def name_of(content: bytes) -> str:
    """Return the file name of a rule set, derived from its content, so that no file ever
    changes.
    """
    return f"{hashlib.sha256(content).hexdigest()[:32]}.srs"


def sound_size(content: bytes, most: int) -> int:
    """Return the bytes of its unpacked rules, at most `most`, if it holds domains as `encode`
    writes them, and nothing else: no other item, and a trie that can be walked. Otherwise 0.
    """
    head = _MAGIC + bytes([_VERSION])
    reader = zlib.decompressobj()
    try:
        # zlib takes a bound of 0 for none.
        unpacked = reader.decompress(content.removeprefix(head), max(most, 1))
        if not (content.startswith(head) and reader.eof and not reader.unused_data):
            return 0
        rules = _Octets(unpacked)
        if rules.take(4) != _ONE_DEFAULT_RULE + _DOMAINS:
            return 0
        leaves, ends = rules.bits(), rules.bits()
        labels = rules.take(rules.varint())
    except (zlib.error, IndexError):
        return 0
    nodes = len(labels) + 1
    is_sound = (
        rules.left == _END
        and _LABELS.match(labels) is not None
        # Each label leads to a node of its own, and the last bit ends the last node.
        and ends.bit_count() == nodes
        and ends.bit_length() == nodes + len(labels)
        and 0 < leaves.bit_length() <= nodes
    )
    return len(unpacked) if is_sound else 0


class _Octets:
    """Octets read from the front. Raises IndexError if there are too few."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> bytes:
        """The octets that were not read yet."""
        return self._data[self._at :]

    def take(self, size: int) -> bytes:
        """Read `size` octets."""
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise IndexError("too few octets")
        self._at += size
        return taken

    def varint(self) -> int:
        """Read a number as Go's ``binary.PutUvarint`` writes it, of up to 28 bits."""
        number = 0
        for shift in (0, 7, 14, 21):
            octet = self.take(1)[0]
            number |= (octet & 0x7F) << shift
            if octet < 0x80:
                return number
        raise IndexError("too large a number")

    def bits(self) -> int:
        """Read a bitmap in words of 64, as one number; superfluous words are an error."""
        count = self.varint()
        words = struct.unpack(f">{count}Q", self.take(8 * count))
        bitmap = int.from_bytes(struct.pack(f"<{count}Q", *words), "little")
        if count != (bitmap.bit_length() + 63) // 64:
            raise IndexError("a word too many")
        return bitmap


def _trie(keys: list[bytes]) -> tuple[list[int], list[int], bytes]:
    """Return the trie of sorted keys: the bits of the nodes that are leaves, the bits at which a
    node's labels end, and the labels, each in level order.

    A node is the range of keys with a common beginning, and the number of bytes in common.
    """
    leaves: list[int] = []
    ends: list[int] = []
    labels = bytearray()
    nodes = [(0, len(keys), 0)]
    position = 0
    for number, (first, last, depth) in enumerate(nodes):  # it grows meanwhile
        at = first
        if len(keys[first]) == depth:
            leaves.append(number)
            at += 1
        while at < last:
            begin, label = at, keys[at][depth]
            while at < last and keys[at][depth] == label:
                at += 1
            nodes.append((begin, at, depth + 1))
            labels.append(label)
            position += 1
        ends.append(position)
        position += 1
    return leaves, ends, bytes(labels)


def _words(bits: list[int]) -> list[int]:
    """Return a bitmap with `bits` (ascending) set, in words of 64, the lowest bit first."""
    words = [0] * ((bits[-1] >> 6) + 1)
    for bit in bits:
        words[bit >> 6] |= 1 << (bit & 63)
    return words


def _varint(number: int) -> bytes:
    """Encode as Go's ``binary.PutUvarint``: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
