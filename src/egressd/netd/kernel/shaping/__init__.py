"""Speed limits that hold, whatever the target: HTB on two IFBs, led to by nftables.

Called by the reconciler. `Shaper` makes limits so, changes them one by one, heals them and
counts each rule's traffic; `ForeignShaping` tells when another program touched them. What
is to be in the kernel is said by ``planner/shaping.py``, which also explains the layout.
Imports `model`, `planner` and the other kernel adapters; nothing else of netd.
"""

from egressd.netd.kernel.shaping.events import ForeignShaping
from egressd.netd.kernel.shaping.shaper import Shaper

__all__ = ["ForeignShaping", "Shaper"]
