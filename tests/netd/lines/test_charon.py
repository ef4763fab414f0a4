"""The reaction of `Charon` to a daemon that hangs.

The daemon is a stand-in, which grants everything; tests/vm tests the real one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from egressd.netd.lines.charon import Charon, Secured
from egressd.netd.lines.failure import Failure
from egressd.planner.lines import ipsec
from egressd.planner.lines.dial import Dial
from egressd.planner.lines.proposals import IKE_OFFERS
from egressd.planner.registry import LINE_PORTS
from tests.netd.lines.rig import SERVER, exists, line, sh
from tests.support.netns import eventually

STAND_IN = f"""#!{sys.executable}
import json, os, select, socket, struct
from vici.protocol import Message, Packet

secret = b""
conn = {{}}
up = []
asked = 0
answers = []
listener = socket.socket(socket.AF_UNIX)
listener.bind("vici")
listener.listen()
connection, _ = listener.accept()

def send(kind, body=b""):
    connection.sendall(struct.pack("!IB", 1 + len(body), kind) + body)

def is_far():
    return os.path.exists("is-far")

def is_asked():
    return select.select([connection], [], [], 0.05)[0]

while True:
    while answers and not (is_far() and is_asked()):
        send(*answers.pop(0))
    if not (header := connection.recv(4, socket.MSG_WAITALL)):
        connection, _ = listener.accept()
        continue
    data = connection.recv(struct.unpack("!I", header)[0], socket.MSG_WAITALL)
    packet, command = Packet.parse(data), data[2 : 2 + data[1]].decode()
    if packet.response_type != Packet.CMD_REQUEST:
        send(Packet.EVENT_CONFIRM)
        continue
    values = Message.deserialize(packet.payload)
    if command == "terminate" and (ended := values.get("child", b"").decode()) in up:
        up.remove(ended)
    if command == "terminate" and "ike" in values:
        ended = {{"group": {{"child-sas": {{name: {{"name": name}} for name in up}}}}}}
        up.clear()
        send(Packet.EVENT, b"\x0cchild-updown" + Message.serialize(ended))
    if command == "list-sas":
        for name in up:
            child = {{"name": name, "state": "INSTALLED", "packets-in": "0"}}
            sa = Message.serialize({{"group": {{"child-sas": {{name: child}}}}}})
            send(Packet.EVENT, b"\x07list-sa" + sa)
    send(Packet.CMD_RESPONSE)
    secret = values.get("data", secret)
    with open("secret", "wb") as shown:
        shown.write(secret)
    if command == "load-conn":
        (group, conn), = values.items()
        told = {{
            "group": group,
            "proposals": [each.decode() for each in conn["proposals"]],
            "encap": conn["encap"].decode(),
            "children": list(conn["children"]),
        }}
        with open("conns", "a") as shown:
            shown.write(json.dumps(told) + "\\n")
    if "child" in values and "ike" in values and secret != b"wrong":
        name = values["child"].decode()
        is_picky = secret == b"picky" or is_far()
        if is_picky and b"aes128-sha512-modp3072" not in conn["proposals"]:
            no = {{"ikesa-name": values["ike"], "msg": "received NO_PROPOSAL_CHOSEN error notify"}}
            answers.append((Packet.EVENT, b"\x03log" + Message.serialize(no)))
            continue
        asked += 1
        is_long = len(conn["proposals"]) > 20
        if (secret == b"late" and asked == 1) or (secret == b"deaf" and is_long):
            no = {{"ikesa-name": values["ike"], "msg": "giving up after 3 retransmits"}}
            send(Packet.EVENT, b"log" + Message.serialize(no))
            continue
        up.append(name)
        told = {{"up": "yes", name: {{"child-sas": {{name: {{"name": name}}}}}}}}
        answers.append((Packet.EVENT, b"\x0cchild-updown" + Message.serialize(told)))
"""


def conns(run_dir: Path) -> list[dict[str, Any]]:
    """Return the connections that the stand-in has received."""
    (told,) = (run_dir / "charon").rglob("conns")
    return [json.loads(line) for line in told.read_text().splitlines()]


def stand_in(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a stand-in in place of charon. It keeps the secret that it received last and accepts any
    but "wrong"; with "picky" the server takes one proposal only, which is a rare one, with "late"
    it is silent when it is asked first, and with "deaf" whenever it is asked at length. Once there
    is a file `is-far`, it is as with "picky", and answers when there are no more commands for a
    while. Nothing comes by any association.
    """
    script = run_dir / "stand-in"
    script.write_text(STAND_IN)
    script.chmod(0o700)
    monkeypatch.setattr(ipsec, "DAEMON", str(script))


async def opened(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Charon:
    """Return an open `Charon` with a stand-in as its daemon."""
    stand_in(run_dir, monkeypatch)
    sh("ip link set lo up")
    charon = Charon(run_dir / "charon")
    await charon.open()
    return charon


def dial_from(port: int, secret: str) -> Dial:
    return Dial(
        line=line(secret=secret),
        server=IPv4Address(SERVER),
        local=IPv4Address("192.0.2.2"),
        local_port=port,
    )


@pytest.mark.lab
@pytest.mark.usefixtures("inside")
async def test_p3_a_wrong_secret_of_a_line_is_not_kept_for_lines_to_its_server(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.lines.charon._ESTABLISH_S", 0.3)
    charon = await opened(run_dir, monkeypatch)
    await charon.establish(dial_from(LINE_PORTS[0], "right"), lambda: None)
    with pytest.raises(Failure):
        await charon.establish(dial_from(LINE_PORTS[1], "wrong"), lambda: None)
    (told,) = (run_dir / "charon").rglob("secret")
    assert told.read_text() == "right"
    await charon.close()


@pytest.mark.lab
@pytest.mark.usefixtures("inside")
async def test_a_server_that_takes_one_proposal_is_asked_for_it_at_once(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charon = await opened(run_dir, monkeypatch)
    dials = [dial_from(port, "picky") for port in LINE_PORTS[:2]]
    secured = await charon.establish(dials[0], lambda: None)
    assert "aes128-sha512-modp3072" in IKE_OFFERS[secured.manner.ike]
    told = conns(run_dir)
    offers = [each["proposals"] for each in told]
    assert offers == [list(offer) for offer in IKE_OFFERS[: secured.manner.ike + 1]]
    await charon.establish(dials[1], lambda: None)
    (last,) = conns(run_dir)[len(told) :]
    assert last["proposals"] == offers[-1], "what worked comes first"
    await charon.close()


@pytest.mark.lab
@pytest.mark.parametrize(("secret", "tried"), [("late", [0, 1, 0]), ("deaf", [0, 1, 0, 1])])
@pytest.mark.usefixtures("inside")
async def test_a_server_that_was_down_gets_the_first_offer_on_its_return(
    secret: str, tried: list[int], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is silent about that offer keeps the other one."""
    charon = await opened(run_dir, monkeypatch)
    dial = dial_from(LINE_PORTS[0], secret)
    with pytest.raises(Failure, match="no IPsec server answers"):
        await charon.establish(dial, lambda: None)
    await charon.establish(dial, lambda: None)
    await charon.end(dial.local_port)
    secured = await charon.establish(dial, lambda: None)
    asked = [each["proposals"] for each in conns(run_dir)]
    assert asked == [list(IKE_OFFERS[n]) for n in (*tried, tried[-1])]
    assert secured.manner.ike == tried[-1]
    await charon.close()


@pytest.mark.lab
@pytest.mark.parametrize(
    ("secret", "tried"),
    [("right", [0, 0, 0]), ("deaf", [0, 1, 0, 1, 1, 1]), ("picky", [0, 1, 2, 3, 4, 4, 4])],
)
@pytest.mark.usefixtures("inside")
async def test_lines_of_a_group_find_out_once_what_their_server_takes(
    secret: str, tried: list[int], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: each heard what charon reported of another one's offer, and left its own for
    it. One connection of an IKE_SA took the place of another, which the server then ended.
    """
    charon = await opened(run_dir, monkeypatch)
    if secret == "deaf":
        with pytest.raises(Failure, match="no IPsec server answers"):
            await charon.establish(dial_from(LINE_PORTS[3], secret), lambda: None)
    dials = [dial_from(port, secret) for port in LINE_PORTS[:3]]
    found = await asyncio.gather(*(charon.establish(dial, lambda: None) for dial in dials))
    assert [secured.manner.ike for secured in found] == [tried[-1]] * 3
    asked = [each["proposals"] for each in conns(run_dir)]
    assert asked == [list(IKE_OFFERS[n]) for n in tried]
    await charon.close()


@pytest.mark.lab
@pytest.mark.usefixtures("inside")
async def test_a_silent_server_is_asked_once_for_lines_that_come_together(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.lines.charon._ESTABLISH_S", 0.3)
    charon = await opened(run_dir, monkeypatch)
    dials = [dial_from(port, "wrong") for port in LINE_PORTS[:3]]
    coming = (charon.establish(dial, lambda: None) for dial in dials)
    found = await asyncio.gather(*coming, return_exceptions=True)
    assert [type(each) for each in found] == [Failure] * 3
    assert sum(len(each["children"]) == 3 for each in conns(run_dir)) == 1
    # A later line asks again.
    with pytest.raises(Failure):
        await charon.establish(dials[0], lambda: None)
    assert len(conns(run_dir)[-1]["children"]) == 1
    await charon.close()


@pytest.mark.lab
@pytest.mark.usefixtures("inside")
async def test_p3_a_line_that_is_removed_ends_its_own_attempt_alone(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: the line that waited behind it was cancelled, too, and never dialled again."""
    monkeypatch.setattr("egressd.netd.lines.charon._ESTABLISH_S", 1.0)
    charon = await opened(run_dir, monkeypatch)
    first, second = (
        asyncio.create_task(charon.establish(dial_from(port, "wrong"), lambda: None))
        for port in LINE_PORTS[:2]
    )
    await eventually(lambda: any((run_dir / "charon").rglob("conns")))
    first.cancel()
    with pytest.raises(Failure):
        await second
    assert first.cancelled()
    await charon.close()


@pytest.mark.lab
@pytest.mark.parametrize(("silence_s", "is_left"), [(5.0, True), (3.0, False)])
@pytest.mark.usefixtures("inside")
async def test_lines_leave_an_ike_association_that_the_server_has_forgotten(
    silence_s: float, is_left: bool, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the server answers one of them."""
    charon = await opened(run_dir, monkeypatch)
    lost: list[int] = []
    ports = LINE_PORTS[:3]
    for port in ports:
        dial = dial_from(port, "right")
        await charon.establish(dial, lambda port=port: lost.append(port))  # type: ignore[misc]
        charon.carries(port)
    for port, silent in zip(ports, (6.0, 5.0, silence_s), strict=True):
        charon.feel(port, silent)
    await charon.end(ports[0])
    await charon.establish(dial_from(ports[0], "right"), lambda: None)
    await eventually(lambda: sorted(lost) == (list(ports[1:]) if is_left else []))
    await charon.close()


@pytest.mark.lab
@pytest.mark.usefixtures("inside")
async def test_lines_that_leave_an_association_find_out_once_what_is_taken(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: for the first of them the others counted as up, although they had to leave, too.
    It negotiated beside them.
    """
    charon = await opened(run_dir, monkeypatch)
    redialling: list[asyncio.Task[Secured]] = []

    async def establish(port: int) -> Secured:
        return await charon.establish(dial_from(port, "right"), lambda: redial(port))

    def redial(port: int) -> None:
        async def again() -> Secured:
            await charon.end(port)
            return await establish(port)

        redialling.append(asyncio.create_task(again()))

    for port in LINE_PORTS[:3]:
        await establish(port)
        charon.carries(port)
    for port in LINE_PORTS[:3]:
        charon.feel(port, 5.0)
    (told,) = (run_dir / "charon").rglob("conns")
    told.with_name("is-far").touch()
    redial(LINE_PORTS[0])
    await eventually(lambda: len(redialling) == 3)
    found = await asyncio.gather(*redialling)
    last = found[0].manner.ike
    assert [secured.manner.ike for secured in found] == [last] * 3
    offers = [list(offer) for offer in IKE_OFFERS]
    asked = [offers.index(each["proposals"]) for each in conns(run_dir)]
    assert asked == sorted(asked), "no line goes back to what was refused"
    assert {*asked} == {*range(last + 1)}
    await charon.close()


@pytest.mark.lab
@pytest.mark.usefixtures("inside")
async def test_a_line_without_an_answer_by_esp_uses_udp_next(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charon = await opened(run_dir, monkeypatch)
    dial = dial_from(LINE_PORTS[0], "right")
    for encap, told in (
        ("no", "may drop ESP"),
        ("yes", "neither by ESP nor by ESP in UDP"),
        ("no", "may drop ESP"),
    ):
        await charon.establish(dial, lambda: None)
        assert conns(run_dir)[-1]["encap"] == encap
        failure = await charon.unheard(dial.local_port)
        assert failure is not None
        assert told in str(failure)
        await charon.end(dial.local_port)
    await charon.close()


@pytest.mark.lab
@pytest.mark.usefixtures("inside")
async def test_lines_that_share_an_ike_association_share_a_connection(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charon = await opened(run_dir, monkeypatch)
    dials = [dial_from(port, secret) for port, secret in zip(LINE_PORTS, "aab", strict=False)]
    for dial in dials:
        await charon.establish(dial, lambda: None)
    names = [f"line-{dial.local_port}" for dial in dials]
    told = [(each["group"], each["children"]) for each in conns(run_dir)]
    assert told == [("group-0", names[:1]), ("group-0", names[:2]), ("group-1", names[2:])]
    await charon.end(dials[0].local_port)
    last = conns(run_dir)[-1]
    assert (last["group"], last["children"]) == ("group-0", names[1:2])
    await charon.close()


@pytest.mark.lab
@pytest.mark.usefixtures("inside")
async def test_a_connection_keeps_the_manner_of_its_lines_that_are_up(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: when a line was ended, it got that of one that had not been dialled yet."""
    charon = await opened(run_dir, monkeypatch)
    dials = [dial_from(port, "picky") for port in LINE_PORTS[:3]]
    for dial in dials[:2]:
        await charon.establish(dial, lambda: None)
    other = asyncio.create_task(charon.establish(dial_from(LINE_PORTS[3], "wrong"), lambda: None))
    await eventually(lambda: conns(run_dir)[-1]["group"] == "group-1")
    waiting = asyncio.create_task(charon.establish(dials[2], lambda: None))
    await asyncio.sleep(0)  # it has begun
    await charon.end(dials[0].local_port)
    last = conns(run_dir)[-1]
    assert last["children"] == [f"line-{dial.local_port}" for dial in dials[1:]]
    assert last["proposals"] == list(IKE_OFFERS[4])
    for task in (other, waiting):
        task.cancel()
    await asyncio.wait({other, waiting})
    await charon.close()


@pytest.mark.lab
@pytest.mark.usefixtures("inside")
async def test_p3_a_dialled_line_leaves_an_adopted_one_its_group(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: it got the same number, and its connection took the place of the other one's.
    A line with the same secret and server got another number, and an IKE_SA of its own.
    """
    earlier = await opened(run_dir, monkeypatch)
    adopted, beside, other = (
        dial_from(port, secret)
        for port, secret in zip(LINE_PORTS, ("picky", "picky", "right"), strict=False)
    )
    secured = await earlier.establish(adopted, lambda: None)
    earlier.release()
    charon = Charon(run_dir / "charon")
    await charon.open()
    found = await asyncio.gather(
        charon.resume(adopted, secured.group, secured.manner, lambda: None),
        charon.establish(other, lambda: None),
        charon.establish(beside, lambda: None),
    )
    assert [each and each.group for each in found] == [0, 1, 0]
    last = next(each for each in reversed(conns(run_dir)) if each["group"] == "group-0")
    assert last["children"] == [f"line-{dial.local_port}" for dial in (adopted, beside)]
    assert last["proposals"] == list(IKE_OFFERS[secured.manner.ike])
    await charon.close()


@pytest.mark.lab
@pytest.mark.usefixtures("inside")
async def test_a_hanging_daemon_is_replaced(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egressd.netd.lines.vici._ANSWER_S", 1.0)
    dials = [dial_from(port, "s") for port in LINE_PORTS[:9]]
    loop = asyncio.get_running_loop()
    charon = await opened(run_dir, monkeypatch)
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
