"""One module a resource: the wire schemas of its requests, its answers, its endpoints.

Called by `api.app`, which hands each the use cases it calls. May import the rest of `api`
but not one another.
"""
