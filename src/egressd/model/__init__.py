"""The nouns of egressd: the desired state, and the plan that puts it in force.

Every other room may import this one; it imports none of them. All types but `Plan` are frozen
``msgspec`` structs, so that they can be shared between tasks, compared, hashed by field and sent
over netd's socket unchanged. A `Plan` is changed in place. Nothing here touches a file, a socket,
the clock or a log.
"""
