"""Checks that the machine has the things that a test needs."""

from __future__ import annotations

from collections.abc import Callable

Need = Callable[[str, bool], None]
"""A function that skips the test if the machine lacks a thing, or fails it in CI."""
