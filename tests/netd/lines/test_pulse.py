"""The silence of a server, and the reading of pppd's log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.lines.pulse import LOOK_S, SILENT_S, EchoLog, Packets, SignsOfLife

ASKED = b"sent [LCP EchoReq id=0x3 magic=0xc22e5742]\n"
ANSWERED = b"rcvd [LCP EchoRep id=0x3 magic=0xacfd0a9d]\n"
HEAD = b"local  IP address 10.9.0.2\nremote IP address 10.9.0.1\n"


def silent_after(received: list[int], sent: list[int], said: list[bytes]) -> float | None:
    """The time, in seconds from the first of looks, at which the server is missed."""
    pulse = SignsOfLife(0)
    for number, (rx, tx, words) in enumerate(zip(received, sent, said, strict=True)):
        now = number * LOOK_S
        pulse.look(now, Packets(rx, tx), words)
        if pulse.is_silent(now):
            return now
    return None


def test_echoes_that_are_answered_keep_an_idle_line_until_they_stop() -> None:
    looks = 60
    said = [ANSWERED if n % 2 == 0 and n <= 40 else ASKED for n in range(looks)]
    assert silent_after([0] * looks, [0] * looks, said) == 40 * LOOK_S + SILENT_S


@pytest.mark.parametrize("every", [1, 10, 13, 60])
@pytest.mark.parametrize("later", [0, 1, 5])
def test_traffic_keeps_a_line_whose_server_answers_no_echoes(every: int, later: int) -> None:
    """However seldom, and though an answer takes some looks."""
    looks = 300
    sent = [n // every for n in range(looks)]
    received = [0] * later + sent[: looks - later]
    assert silent_after(received, sent, [ASKED] * looks) is None


def test_an_idle_line_to_a_server_that_answers_no_echoes_is_kept() -> None:
    looks = 100
    assert silent_after([0] * looks, [0] * looks, [ASKED] * looks) is None


@pytest.mark.parametrize(
    ("idle_s", "missed_s"), [(0.0, SILENT_S), (5.0, 9.5), (30.0, 34.5), (3600.0, 3604.5)]
)
def test_a_server_without_echoes_is_missed_if_traffic_stays_unanswered(
    idle_s: float, missed_s: float
) -> None:
    """Also where nothing was sent for a while before: the first packet has its time."""
    looks, last = int(missed_s / LOOK_S) + 100, 50
    received = [min(n, last) for n in range(looks)]
    idle = int(idle_s / LOOK_S)
    sent = [min(n, last) + max(n - last - idle, 0) for n in range(looks)]
    assert silent_after(received, sent, [ASKED] * looks) == last * LOOK_S + missed_s


def test_a_doubtful_server_is_pinged_before_it_counts_as_silent() -> None:
    pulse = SignsOfLife(0)
    pulse.look(0, Packets(1, 1), b"")
    assert not pulse.is_doubtful(5)
    pulse.look(5, Packets(1, 2), b"")
    assert not pulse.is_doubtful(5)
    assert pulse.is_doubtful(6)
    assert not pulse.is_silent(8)
    pulse.look(8.5, Packets(2, 3), b"")
    assert not pulse.is_doubtful(12)


@given(st.lists(st.sampled_from([b"", ASKED, ANSWERED, ASKED[:9], b"words\n"]), max_size=60))
def test_each_line_of_the_log_is_read_once(tmp_path_factory: pytest.TempPathFactory,
                                           written: list[bytes]) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("log") / "ppp.log"
    path.write_bytes(b"")
    log = EchoLog(path)
    read = b""
    for part in written:
        with path.open("ab") as file:
            file.write(part)
        read += log.news()
    whole = b"".join(written)
    assert read == whole[: whole.rfind(b"\n") + 1]


def test_old_echoes_go_and_words_stay(tmp_path: Path) -> None:
    path = tmp_path / "ppp.log"
    path.write_bytes(HEAD)
    log = EchoLog(path)
    for _ in range(3000):
        with path.open("ab") as file:
            file.write(ASKED + ANSWERED)
        assert log.news().endswith(ANSWERED)
        assert path.stat().st_size < 100_000
    with path.open("ab") as file:
        file.write(b"LCP terminated by peer\n")
    assert log.news() == b"LCP terminated by peer\n"
    assert path.read_bytes().startswith(HEAD)


def test_a_log_that_was_emptied_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "ppp.log"
    path.write_bytes(HEAD + ASKED * 50)
    log = EchoLog(path)
    log.news()
    path.write_bytes(ANSWERED)
    assert log.news() == ANSWERED
    path.unlink()
    assert log.news() == b""
