"""The users that the processes run as."""

from __future__ import annotations

import os
import pwd

from egressd.model.errors import Failed


def account(name: str) -> pwd.struct_passwd:
    """The user of that name, or the current one when not started as root.

    Raises Failed when root is to become a user that does not exist.
    """
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise Failed(f"become the user {name}", "there is none; script/setup makes it") from None
