"""Expressions that chains in several files have in common."""

from __future__ import annotations

from typing import Final

from egressd.planner.registry import (
    MARK_EGRESS,
    MARK_ENGINE,
    MARK_EPOCH_MASK,
    MARK_GROUP,
    MARK_GROUP_MASK,
    MARK_KIND_MASK,
    MARK_ROUTED_MASK,
)

NO_EPOCH: Final = 0xFFFF_FFFF & ~MARK_EPOCH_MASK
NO_KIND: Final = 0xFFFF_FFFF & ~MARK_KIND_MASK
KIND: Final = f"meta mark & {MARK_KIND_MASK:#x}"
GROUP: Final = f"meta mark & {MARK_GROUP_MASK:#x} == {MARK_GROUP:#x}"
ROUTED: Final = f"& {MARK_ROUTED_MASK:#x} == {MARK_EGRESS:#x}"
ENGINE: Final = f"& {MARK_KIND_MASK:#x} == {MARK_ENGINE:#x}"
MARK_OF_FLOW: Final = f"meta mark set ct mark & {NO_EPOCH:#x}"
"""Statement that gives a packet the mark that its kernel-routed flow began with."""
TO_INSTANCE: Final = "meta l4proto { tcp, udp } tproxy ip to 127.0.0.1:meta mark map @ports accept"
