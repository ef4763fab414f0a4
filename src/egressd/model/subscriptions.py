"""The results of fetching lists of nodes, and the bounds of subscriptions."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from egressd.model.wording import NONE, Coded, Coding, Sentence

SUBSCRIPTIONS_MAX: Final = 64
"""Subscriptions of a device."""
NODES_MAX: Final = 5000
"""Nodes that are taken from one list."""
HEADERS_MAX: Final = 16
"""Fields that a subscription adds to the head of its request."""
HEADER_NAME_MAX: Final = 64
"""Characters of such a field's name."""
RENAMES_MAX: Final = 32
"""Patterns by which a subscription renames nodes."""
INTERVAL_S: Final = (600, 30 * 86_400)
"""Seconds between two fetches: the fewest and the most."""
DEFAULT_INTERVAL_S: Final = 86_400
"""Seconds between two fetches if neither the subscription nor the answer names them."""
AGENT_MAX: Final = 256
"""Characters of a User-Agent."""
QUOTA_LOW: Final = 0.9
"""The part of a quota from which it counts as low."""
EXPIRY_NEAR_S: Final = 3 * 86_400
"""Seconds before the end of a subscription from which it counts as low, too."""

NodeFate: TypeAlias = Literal["added", "changed", "renamed", "same", "kept", "deleted", "passed"]


class ListedFate(Coding, frozen=True, kw_only=True):
    """The fate of one node of a list, or of one that is gone from it."""

    name: Annotated[str, Meta(description="The node's name here, or in the list if it is passed.")]
    fate: Annotated[
        NodeFate,
        Meta(
            description="`kept`: gone from the list, used, and blocked. `passed`: it is left out, "
            "or cannot be a node."
        ),
    ]
    changed: Annotated[
        tuple[str, ...],
        Meta(description="Fields with other values; those of `config_json` by their own names."),
    ] = ()
    reason: Annotated[Sentence, Meta(description="Why it is passed over; else empty.")]
    reason_coded: Coded | None = None


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of nodes that a fetched list has changed, and of those that there are."""

    added: int = 0
    changed: int = 0
    renamed: int = 0
    gone: Annotated[int, Meta(description="Nodes that the list has no longer, kept or not.")] = 0
    total: Annotated[int, Meta(description="Nodes of the list that are here.")] = 0
    passed_over: Annotated[
        int, Meta(description="Nodes that the filters leave out, and rows that are no nodes.")
    ] = 0


class AccountQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The account's use, as the provider tells it by ``subscription-userinfo``."""

    used: Annotated[int | None, Meta(description="Bytes, up and down.")] = None
    total: Annotated[int | None, Meta(description="Bytes that may be used.")] = None
    expires_at: str | None = None


class LastFetch(Coding, frozen=True, kw_only=True):
    """The last fetch of a list, and the result of the last one that succeeded."""

    at: Annotated[str, Meta(description="Empty before the first one.")] = ""
    succeeded_at: str = ""
    error: Annotated[Sentence, Meta(description="Why it failed; empty if it did not.")]
    error_coded: Coded | None = None
    refreshed: Refreshed = Refreshed()


class FetchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A box's knowledge of a subscription."""

    last: LastFetch = LastFetch(error=NONE)
    quota: AccountQuota = AccountQuota()
    interval_s: int = 0
    """Seconds between fetches that the provider names; 0 if it does not."""
    tried: float = 0.0
    """The Unix time of the last fetch."""
    source: str = ""
    """A digest of the URL that it is known of."""
