"""Encrypted Client Hello: check the form of a list of configurations (RFC 9849, section 4)."""

from __future__ import annotations

from typing import Final

_VERSION: Final = 0xFE0D


def is_config_list(data: bytes) -> bool:
    """True if `data` is an ECHConfigList that holds a configuration of the supported version."""
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
    """True if `content` is an ECHConfigContents."""
    content.number(1)  # config_id
    content.number(2)  # kem_id
    public_key, cipher_suites = content.vector(2), content.vector(2)
    content.number(1)  # maximum_name_length
    public_name = content.vector(1)
    content.vector(2)  # extensions
    has_all = public_key.left and cipher_suites.left and public_name.left
    return bool(has_all) and not content.left


class _Octets:
    """Octets read from the front. Raises ValueError when too few are left."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def number(self, size: int) -> int:
        """Read a number of `size` octets."""
        return int.from_bytes(self._take(size), "big")

    def vector(self, size: int) -> _Octets:
        """Read a vector, which its own length precedes as a number of `size` octets."""
        return _Octets(self._take(self.number(size)))

    def _take(self, size: int) -> bytes:
        if len(self.left) < size:
            raise ValueError("too few octets")
        taken, self.left = self.left[:size], self.left[size:]
        return taken
