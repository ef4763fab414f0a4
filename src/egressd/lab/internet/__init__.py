"""The servers of the lab's internet: web, echo, DNS. One asyncio process runs them all.

Each remembers whom it saw and what it was asked, so that a test can ask who left where.
Started as ``python -m egressd.lab.internet CONFIG``; see `__main__`.
"""
