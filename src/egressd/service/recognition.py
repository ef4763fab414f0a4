"""The form of a text that is to be imported."""

from __future__ import annotations

from typing import Literal, NamedTuple

from egressd.formats.recognition import recognise_lines, recognise_nodes


class TextForm(NamedTuple):
    """The type to import a text with, and its form (`egressd.formats.recognition.NodeForm`)."""

    type: str
    form: str


def recognised(resource: Literal["nodes", "vpn-lines"], text: str) -> TextForm:
    """Return the form of a text of nodes or of VPN lines. Raises Invalid for too many lines."""
    if resource == "vpn-lines":
        return TextForm(recognise_lines(text), "rows")
    found = recognise_nodes(text)
    return TextForm(found.type, found.form)
