"""Files of an SSH server that opens connections for one user."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

PROGRAM: Final = "/usr/sbin/sshd"
"""The server's program, which starts itself again by this name."""
PORT: Final = 22


class SshServer:
    """An SSH server at an address, for a user who has a password or a key."""

    def __init__(self, address: str, folder: Path, user: str, password_hash: str = "") -> None:
        self._host, self._client = (ed25519.Ed25519PrivateKey.generate() for _ in range(2))
        self._user = user
        self._hash = password_hash or "*"
        settings = {
            "ListenAddress": f"{address}:{PORT}",
            "HostKey": folder / "host_key",
            "AuthorizedKeysFile": folder / "authorized_keys",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "UseDNS": "no",
            "KbdInteractiveAuthentication": "no",
            "PasswordAuthentication": "yes" if password_hash else "no",
            "MaxStartups": 100,
        }
        self.argv = (
            *("sh", "-c"),
            f"mkdir -p /run/sshd && chmod 600 {folder}/host_key && "
            f"exec {PROGRAM} -D -e -f {folder}/sshd_config",
        )
        self.files = {
            "sshd_config": "".join(f"{key} {value}\n" for key, value in settings.items()),
            "host_key": _private(self._host),
            "authorized_keys": f"{_public(self._client)}\n",
        }

    @property
    def etc(self) -> Mapping[str, str]:
        """The system's users as the server sees them, by the name of the file in /etc."""
        return {
            "passwd": (
                "root:x:0:0:root:/root:/bin/sh\n"
                "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
                f"{self._user}:x:1000:1000::/:/bin/sh\n"
            ),
            "shadow": (
                f"root:*:19000::::::\nsshd:*:19000::::::\n{self._user}:{self._hash}:19000::::::\n"
            ),
        }

    @property
    def clash(self) -> dict[str, Any]:
        """The fields of a Clash proxy entry for the user, without a password or a key."""
        return {"port": PORT, "username": self._user, "host-key": [_public(self._host)]}

    @property
    def private_key(self) -> str:
        """The user's private key in OpenSSH's form."""
        return _private(self._client)


def _private(key: ed25519.Ed25519PrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


def _public(key: ed25519.Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
