"""The reaction of `Charon` to a daemon that hangs.

The daemon is a stand-in, which grants everything; tests/vm tests the real one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from egressd.netd.lines.charon import Charon
from egressd.netd.lines.failure import Failure
from egressd.planner.lines import ipsec
from egressd.planner.lines.dial import Dial
from egressd.planner.registry import LINE_PORTS
from tests.netd.lines.rig import SERVER, exists, line, sh
from tests.netd.lines.test_lines import Inside

STAND_IN = f"""#!{sys.executable}
import socket, struct
from vici.protocol import Message, Packet

secret = b""
listener = socket.socket(socket.AF_UNIX)
listener.bind("vici")
listener.listen()
connection, _ = listener.accept()

def send(kind, body=b""):
    connection.sendall(struct.pack("!IB", 1 + len(body), kind) + body)

while header := connection.recv(4, socket.MSG_WAITALL):
    packet = Packet.parse(connection.recv(struct.unpack("!I", header)[0], socket.MSG_WAITALL))
    if packet.response_type != Packet.CMD_REQUEST:
        send(Packet.EVENT_CONFIRM)
        continue
    send(Packet.CMD_RESPONSE)
    values = Message.deserialize(packet.payload)
    secret = values.get("data", secret)
    with open("secret", "wb") as shown:
        shown.write(secret)
    if "child" in values and "ike" in values and secret != b"wrong":
        name = values["child"].decode()
        up = {{"up": "yes", name: {{"child-sas": {{name: {{"name": name}}}}}}}}
        send(Packet.EVENT, b"\x0cchild-updown" + Message.serialize(up))
"""


def stand_in(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a stand-in in place of charon: it keeps the secret that it received last, and accepts any
    but "wrong".
    """
    script = run_dir / "stand-in"
    script.write_text(STAND_IN)
    script.chmod(0o700)
    monkeypatch.setattr(ipsec, "DAEMON", str(script))


def dial_from(port: int, secret: str) -> Dial:
    return Dial(
        line=line(secret=secret),
        server=IPv4Address(SERVER),
        local=IPv4Address("192.0.2.2"),
        local_port=port,
    )


@pytest.mark.lab
def test_p3_a_wrong_secret_of_a_line_is_not_kept_for_lines_to_its_server(
    run_dir: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(run_dir, monkeypatch)
    monkeypatch.setattr("egressd.netd.lines.charon._ESTABLISH_S", 0.3)

    async def body() -> None:
        sh("ip link set lo up")
        charon = Charon(run_dir / "charon")
        await charon.open()
        await charon.establish(dial_from(LINE_PORTS[0], "right"), lambda: None)
        with pytest.raises(Failure):
            await charon.establish(dial_from(LINE_PORTS[1], "wrong"), lambda: None)
        (told,) = (run_dir / "charon").rglob("secret")
        assert told.read_text() == "right"
        await charon.close()

    inside(body)


@pytest.mark.lab
def test_a_hanging_daemon_is_replaced(
    run_dir: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(run_dir, monkeypatch)
    monkeypatch.setattr("egressd.netd.lines.vici._ANSWER_S", 1.0)
    dials = [dial_from(port, "s") for port in LINE_PORTS[:9]]

    async def body() -> None:
        sh("ip link set lo up")
        loop = asyncio.get_running_loop()
        charon = Charon(run_dir / "charon")
        await charon.open()
        lost: list[int] = []
        for dial in dials[:8]:
            port = dial.local_port
            await charon.establish(dial, lambda port=port: lost.append(port))  # type: ignore[misc]
        hung = charon.pid
        assert hung is not None
        os.kill(hung, signal.SIGSTOP)
        began = loop.time()
        await asyncio.gather(*(charon.end(dial.local_port) for dial in dials[:4]))
        assert loop.time() - began < 3, "each waited for in turn takes 8 s"
        assert lost == [dial.local_port for dial in dials[4:8]]
        await charon.establish(dials[8], lambda: None)
        assert not exists(hung)
        assert charon.pid not in (None, hung)
        # The same if a new dial is the first to notice.
        os.kill(charon.pid or 0, signal.SIGSTOP)
        with pytest.raises(Failure, match="the IKE daemon failed: charon does not answer"):
            await charon.establish(dials[0], lambda: None)
        await charon.establish(dials[0], lambda: None)
        await charon.close()

    inside(body)
