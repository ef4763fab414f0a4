"""Speed limits that hold for every target: HTB on two IFBs, to which nftables redirects.

Called by the reconciler. `Shaper` sets limits, changes them one by one, repairs them and counts
each rule's traffic; `ForeignShaping` reports changes by other programs. ``planner/shaping.py``
decides the contents of the kernel's objects, and also explains the layout. Imports `model`,
`planner` and the other kernel adapters; nothing else of netd.
"""

from egressd.netd.kernel.tc.events import ForeignShaping
from egressd.netd.kernel.tc.shaper import Shaper

__all__ = ["ForeignShaping", "Shaper"]
