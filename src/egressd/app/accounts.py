"""The users that the processes run as."""

from __future__ import annotations

import os
import pwd

from egressd.model.errors import Failed


def account(name: str) -> pwd.struct_passwd:
    """Return the user of that name, or the current user if this process does not run as root.

    Raises Failed if root is to become a user that does not exist.
    """
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise Failed(f"become the user {name}", "there is none; script/setup makes it") from None
