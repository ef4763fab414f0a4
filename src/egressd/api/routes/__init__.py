"""One module a resource: the wire schemas of its requests, its answers, its endpoints.

Mounted by `api.app`. Each has a `router`; handlers declare the use cases that they call as a
parameter (`dependencies.ServicesDep`). May import the rest of `api` but not one another.
"""
