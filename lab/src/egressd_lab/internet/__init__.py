"""The servers of the lab's internet: web, echo, DNS. One asyncio process runs them all.

Each records its clients and their requests, so that a test can check by which way each client left.
Started as ``python -m egressd_lab.internet CONFIG``; see `__main__`.
"""
