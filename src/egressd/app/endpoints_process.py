"""Print the places that the configuration has the api listen at, for `supervise`."""

from __future__ import annotations

import sys
from pathlib import Path

from egressd.app import config
from egressd.model.errors import EgressdError


def main(path: Path | None) -> None:
    """Print them, one a line, or the faults of the configuration and exit with status 1."""
    try:
        wanted = config.load(path).api
    except EgressdError as error:
        sys.exit(str(error))
    print(wanted.listen, wanted.tls_listen, sep="\n")
