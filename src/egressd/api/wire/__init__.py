"""The shapes of requests and answers, as the specification's tables have them.

Requests are pydantic models, read strictly; answers are msgspec structs. Both describe
themselves in the OpenAPI document.

- `fields`: the types of single fields.
- `bodies`, `answers`: what several resources share.
- one module a resource.
"""
