"""The Unix socket between the api and netd: `server` is netd's end, `client` the api's.

`allowance` bounds the memory that a connection's requests take.
"""
