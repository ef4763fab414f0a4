"""Encrypted Client Hello: is a list of configurations well-formed? (RFC 9849, section 4)"""

from __future__ import annotations

from typing import Final

_VERSION: Final = 0xFE0D


def is_config_list(data: bytes) -> bool:
    """Whether it is an ECHConfigList with a configuration of the version in use in it."""
    try:
        listed = _Octets(data)
        configs = listed.vector(2)
        versions = set()
        while configs.left:
            version, content = configs.number(2), configs.vector(2)
            if version == _VERSION and not _is_content(content):
                return False
            versions.add(version)
    except ValueError:
        return False
    return not listed.left and _VERSION in versions


def _is_content(content: _Octets) -> bool:
    """Whether it is an ECHConfigContents."""
    content.number(1)  # config_id
    content.number(2)  # kem_id
    public_key, cipher_suites = content.vector(2), content.vector(2)
    content.number(1)  # maximum_name_length
    public_name = content.vector(1)
    content.vector(2)  # extensions
    has_all = public_key.left and cipher_suites.left and public_name.left
    return bool(has_all) and not content.left


class _Octets:
    """Octets read from the front. ValueError where there are too few."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def number(self, size: int) -> int:
        """A number of so many octets."""
        return int.from_bytes(self._take(size), "big")

    def vector(self, size: int) -> _Octets:
        """What follows its own length, a number of so many octets."""
        return _Octets(self._take(self.number(size)))

    def _take(self, size: int) -> bytes:
        if len(self.left) < size:
            raise ValueError("too few octets")
        taken, self.left = self.left[:size], self.left[size:]
        return taken
