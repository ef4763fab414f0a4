"""The nouns of egressd: what an operator wants, and the plan that makes it so.

Every other room may import this one; it imports none of them. All types are frozen ``msgspec``
structs, so that they can be shared between tasks, compared, hashed by field and sent over netd's
socket as they are; but for `Plan`, to which changes are applied in place. Nothing here touches a
file, a socket, the clock or a log.
"""
