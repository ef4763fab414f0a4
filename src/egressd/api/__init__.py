"""HTTP: version 1 of the management API, and the operations endpoints beside it.

Called by `app` (`app.create_app`, `server.serve`). May import `service` and `model`; what
else it needs (the token, the license, events, the console) is handed in.

A request passes, from the outside in:

- `observe`: gives it an id, logs it, counts it; nothing that goes wrong inside gets past.
- `gate`: token, license, endpoint, in that order; then the limits of its body (`intake`).
- FastAPI with `endpoints`: parses the body into a wire schema (`bodies`, `fields`), and
  lists every fault (`problems`).
- `routes`: one module a resource; calls a use case of `service` (`dependencies`) and words its
  answers (`wire.outcomes`). `routers` declares endpoints beside their handlers.

`document` makes the OpenAPI document out of the same schemas, `page` renders it for people.
Everything is built when the application is made, so that no first request waits for it.
"""
