"""A stand-in for pppd and pptp, which need a kernel with PPP: it calls `vpn_server`.

``file OPTIONS`` reads egressd's options of a line. The line's interface leads nowhere. What is said
about the line is in pppd's words, and in the file that the options name.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

_PORT = 1723
_ANSWER_S = 5.0
_BEAT_S = 0.5
_OWN, _PEER = "10.9.0.2", "10.9.0.1"
_REFUSED = 19
"""pppd's exit status after a refused login."""


def _options(text: str) -> dict[str, str]:
    """Return the options that have a value, without quotes and escapes."""
    plain = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
    words = (line.partition(" ") for line in plain.splitlines())
    return {name: value.strip('"') for name, _, value in words if value}


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _hang_up(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def main(path: str) -> int:
    """Log in and stay up until either end hangs up."""
    options = _options(Path(path).read_text())
    name, log = options["ifname"], Path(options["logfile"])
    server, *_, own = options["pty"].removeprefix("exec /usr/sbin/pptp ").split()

    def say(text: str) -> None:
        with log.open("a") as file:
            file.write(f"{text}\n")

    call = socket.create_connection((server, _PORT), _ANSWER_S, (own, 0))
    call.sendall(f"{options['user']} {options['password']}\n".encode())
    answer = call.makefile("r").readline().strip()
    if answer != "yes":
        say(f"MS-CHAP authentication failed: {answer}")
        return _REFUSED
    signal.signal(signal.SIGTERM, _hang_up)
    try:
        _ip("link", "add", name, "type", "ifb")
        _ip("address", "add", _OWN, "peer", _PEER, "dev", name)
        _ip("link", "set", name, "up")
        say(f"local  IP address {_OWN}\nremote IP address {_PEER}")
        while True:
            call.sendall(b"echo\n")
            say("rcvd [LCP EchoRep id=0x1 magic=0x1]")
            time.sleep(_BEAT_S)
    except OSError:
        say("Modem hangup")
        return 16
    finally:
        subprocess.run(["ip", "link", "delete", name], check=False)
        call.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[2]))
