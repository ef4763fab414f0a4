"""The section ``[cluster]`` of the configuration file, as commands write it."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Final

from egressd.app import config
from egressd.app.config import Cluster
from egressd.model.errors import Failed, Invalid
from egressd.store.files import rewrite_durably

_HEADER: Final = re.compile(r"\s*\[.*\]\s*(#.*)?\Z")
_OURS: Final = re.compile(r"\s*\[\s*cluster\s*\]\s*(#.*)?\Z")
_NEW_MODE: Final = 0o644
"""The mode of a file that was not there: it has no secret."""


def section_of(cluster: Cluster) -> str:
    """Return the section as text."""
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}"  # as a basic string of TOML
        for key, value in (
            ("database", cluster.database),
            ("site", cluster.site),
            ("member", cluster.member),
        )
    ]
    return "\n".join(["[cluster]", *lines, ""])


def with_section(text: str, cluster: Cluster | None) -> str:
    """Return a configuration file's text with another section, or with none.

    Other lines, and comments, stay. Raises Invalid if the text cannot be changed so.
    """
    kept: list[str] = []
    is_ours = False
    for line in text.splitlines():
        if _HEADER.match(line):
            is_ours = _OURS.match(line) is not None
            if is_ours:
                continue
        if not is_ours or not line.strip() or line.lstrip().startswith("#"):
            kept.append(line)
    made = "".join(f"{line}\n" for line in kept)
    if cluster is not None:
        gap = "\n" if made.strip() and not made.endswith("\n\n") else ""
        made += gap + section_of(cluster)
    try:
        before, after = (config.read(tomllib.loads(each)) for each in (text, made))
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"the section [cluster] must be written by hand: {error}") from None
    if after != replace(before, cluster=Cluster() if cluster is None else cluster):
        raise Invalid("the section [cluster] must be written by hand")
    return made


def write_section(path: Path, cluster: Cluster | None) -> None:
    """Change the section in the file `path`, which keeps its owner and mode. Raises EgressdError
    with the file as it was.
    """
    file = path.resolve()
    try:
        made = with_section(file.read_text("utf-8") if file.exists() else "", cluster)
        rewrite_durably(file, made.encode(), new_mode=_NEW_MODE)
    except OSError as error:
        raise Failed(f"write {file}", str(error)) from error
