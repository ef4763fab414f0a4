"""The console: login sessions, the API settings, and the built web page.

- `app`: the ASGI application for every path that is neither the API's nor under ``/ops``.
- `session_auth`: finds the session of a request: transport, host, cookie, protection against
  forgery.
- `accounts`, `sessions`, `passwords`, `throttle`, `devices`: setup, login, expiry, brute force.
- `access_settings`: the API settings page: token, license, device.
- `page`: the built page as static files.

Called by `app`. Imports `service` and `model`. It does not know the API's routes: the gate asks
`session_auth` whether a request belongs to a session.
"""
