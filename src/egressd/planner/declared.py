"""Declarations of an nftables table's sets, maps and chains, each with the comment that ``nft
list`` prints with it and from which the reference in ``docs/dataplane.md`` is generated.
"""

from __future__ import annotations

from typing import Final, NamedTuple

COMMENT_MAX: Final = 128
"""Bytes of a comment that nftables takes (``NFTNL_UDATA_COMMENT_MAXLEN`` in libnftnl)."""


class SetSpec(NamedTuple):
    """A set or a map."""

    spec: str
    """Its type and flags, in nft's notation, without the last semicolon."""
    comment: str

    def declared(self) -> str:
        """Return the block that creates it, with the comment."""
        return f"{{ {self.spec}; {comment_text(self.comment)} }}"


class Chain(NamedTuple):
    """A chain: a base chain if it has a hook; otherwise other chains jump to it."""

    comment: str
    rules: tuple[str, ...]
    hook: str = ""
    """The type, hook, priority and policy of a base chain, in nft's notation."""

    def declared(self) -> str:
        """Return the block that creates it, with the comment and without the rules."""
        hook = f"{self.hook} " if self.hook else ""
        return f"{{ {hook}{comment_text(self.comment)} }}"


def chain(comment: str, *rules: str) -> Chain:
    """Return a chain that others jump to."""
    return Chain(comment, rules)


def base_chain(hook: str, comment: str, *rules: str) -> Chain:
    """Return a chain that the kernel calls at a hook."""
    return Chain(comment, rules, hook)


def comment_text(comment: str) -> str:
    """Return the statement by which an object gets its comment when it is created.

    The kernel keeps the comment that an object was created with: to declare the object again does
    not change it.
    """
    return f'comment "{comment}";'
