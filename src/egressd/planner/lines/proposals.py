"""The encryptions that IPsec servers are offered, and the names of those in use.

Main Mode sends all of an offer in its first packet, which cannot be split (RFC 2409, 5), and old
servers ignore a long one. So what charon can do is split into offers, each of which is an attempt:
the common ones first, and in each the strong before the weak. DES is in no offer: charon's OpenSSL
does not have it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from egressd.model.wording import Sentence, say

_CIPHERS: Final = ("aes256", "aes192", "aes128", "3des")
_HASHES: Final = ("sha256", "sha512", "sha384", "sha1", "md5")
_GROUPS: Final = (
    *("curve25519", "ecp256", "ecp384", "ecp521"),
    *("modp2048", "modp3072", "modp4096", "modp1536", "modp1024"),
)
_WEAK: Final = frozenset({"3des", "md5", "modp1536", "modp1024"})
"""Algorithms that RFC 8247 advises against, and that attacks on are known for."""
_OFFER_MAX: Final = 24
"""Proposals of 36 bytes each (RFC 2408, 3.6), so that a first packet has less than 1,024."""

Offer = tuple[str, ...]


def _every(*parts: Iterable[str]) -> list[str]:
    """All combinations, those with the fewest weak parts first."""
    found = itertools.product(*parts)
    ordered = sorted(found, key=lambda each: len(_WEAK.intersection(each)))
    return ["-".join(each) for each in ordered]


_COMMON: Final = (
    *("aes256-sha384-ecp384", "aes256-sha256-ecp256", "aes128-sha256-ecp256"),
    *("aes256-sha1-ecp384", "aes128-sha1-ecp256"),
    *("aes256-sha256-modp2048", "aes128-sha256-modp2048"),
    *("aes256-sha1-modp2048", "aes128-sha1-modp2048", "3des-sha1-modp2048"),
    *("aes256-sha256-modp1536", "aes128-sha256-modp1536"),
    *("aes256-sha1-modp1536", "aes128-sha1-modp1536", "3des-sha1-modp1536"),
    *("aes256-sha256-modp1024", "aes128-sha256-modp1024"),
    *("aes256-sha1-modp1024", "aes192-sha1-modp1024", "aes128-sha1-modp1024"),
    *("3des-sha1-modp1024", "aes256-md5-modp1024", "aes128-md5-modp1024", "3des-md5-modp1024"),
)
"""Defaults of servers: RouterOS, FortiOS, IOS, Windows and others."""
_FEW: Final = (
    *("aes256-sha1-modp2048", "aes128-sha1-modp2048"),
    *("aes256-sha1-modp1024", "aes128-sha1-modp1024", "3des-sha1-modp1024", "3des-md5-modp1024"),
)
_RARE: Final = [each for each in _every(_CIPHERS, _HASHES, _GROUPS) if each not in _COMMON]

IKE_OFFERS: Final[tuple[Offer, ...]] = (
    _COMMON,
    _FEW,
    *(tuple(_RARE[n : n + _OFFER_MAX]) for n in range(0, len(_RARE), _OFFER_MAX)),
)

_ESP: Final = (
    *(each for each in _every(_CIPHERS, _HASHES) if not _WEAK.intersection(each.split("-"))),
    *("aes256gcm16", "aes128gcm16"),
    *(each for each in _every(_CIPHERS, _HASHES) if _WEAK.intersection(each.split("-"))),
)

ESP_OFFERS: Final[tuple[Offer, ...]] = (
    _ESP,
    ("aes256-sha1", "aes128-sha1", "3des-sha1"),
    # With another exchange of keys (PFS), which goes by one group for all of an offer.
    *(
        tuple(f"{each}-{group}" for each in _ESP)
        for group in sorted(_GROUPS, key=("modp2048", "modp1024").__contains__, reverse=True)
    ),
)

# --- What is in use. ------------------------------------------------------------------------


def in_use(ike: Mapping[str, Any], child: Mapping[str, Any], *, is_forced: bool) -> Sentence:
    """Name the encryption of an association, from charon's ``list-sa``, with its weak parts.

    `is_forced`: ESP goes in UDP since it does not come through otherwise.
    """
    by_ike, by_esp = tuple(_algorithms(ike)), tuple(_algorithms(child))
    code = "ipsec"
    if child.get("encap") == b"yes":
        code = "ipsec-only-in-udp" if is_forced else "ipsec-in-udp"
    told = say(code, ike=by_ike, esp=by_esp)
    parts = dict.fromkeys((*by_ike, *by_esp))
    weak = tuple(filter(_is_weak, parts))
    return say("with-weak-parts", encryption=told, parts=weak) if weak else told


def _is_weak(algorithm: str) -> bool:
    """True for an algorithm of `_WEAK`, which charon lists as ``3DES_CBC`` or ``MODP_1024``."""
    return any(name in algorithm.lower().replace("_", "") for name in _WEAK)


def _algorithms(values: Mapping[str, Any]) -> Iterator[str]:
    for name in ("encr", "integ"):
        if algorithm := values.get(f"{name}-alg", b"").decode():
            size = values.get(f"{name}-keysize", b"").decode()
            yield f"{algorithm}_{size}" if size else algorithm
    if group := values.get("dh-group", b"").decode():
        yield group
