"""Pieces that break generated text unless they are refused or quoted (P6)."""

from __future__ import annotations

from typing import Final

PIECES: Final = (
    "\n", "\r", "\r\n", "\t", " ", "\0", "\x1b", "\x7f", "\x85", "\u2028", "'", '"', "`", "\\",
    "\\\n", ";", "#", "$", "$(reboot)", "${x}", "%", "%s", "%n", "(", ")", "{", "}", "[", "]",
    "[global]", "*", "?", ",", ":", "=", "|", "&", "&&", "||", ">", "<", "!", "~", "@/etc/shadow",
    "-x", "--", "../../etc/shadow", "/etc/shadow", "//", 'include "/etc/shadow"', 'pty "reboot"',
    "plugin x.so", "lns = 6.6.6.6", "; drop", "} accept {", "accept", "10.77.0.1", "0.0.0.0/0",
    "0x30000000", "é", "密码", "\U0001f600", "\u202e", "\ufeff", "a", "A", "0", "9" * 40, "a" * 300,
    "-1", "1e9", "null",
)  # fmt: skip
