"""The signals that end a process. This module is loaded before all others, so it loads none of
them.
"""

from __future__ import annotations

import signal
from typing import Final

ENDINGS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""The signals that make netd stop, or make room for a successor."""
