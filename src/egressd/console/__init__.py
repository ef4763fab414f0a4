"""The console: who is logged in, the API settings, and the built web page.

- `app`: the ASGI application for everything that is neither the API's nor under ``/ops``.
- `door`: which requests are a session's: transport, host, cookie, protection against forgery.
- `accounts`, `sessions`, `passwords`, `throttle`, `devices`: setup, login, expiry, brute force.
- `access`: the API settings page: token, license, device.
- `page`: the built page as static files.

Called by `app`. Imports `service` and `model`. It knows nothing of the API's routes: the gate
asks `door` whether a request is a session's.
"""
