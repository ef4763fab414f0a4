"""The daemons' original output, and the diagnosis from it."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from egressd.model.nouns import Line
from egressd.netd.lines import diagnosis
from egressd.netd.lines.diagnosis import Cause
from egressd.planner.lines.dial import Dial

DIAL = Dial(
    line=Line(
        id=1, type="l2tp", name="l2tp_1", server="vpn", port=1702, username="u", password="p"
    ),
    server=IPv4Address("203.0.113.9"),
    local=IPv4Address("198.51.100.2"),
)

BEGINNING = """\
Renamed interface ppp1 to l2tp_1
Using interface l2tp_1
Connect: l2tp_1 <-->
Overriding mtu 1500 to 1400
"""
ADDRESSED = """\
CHAP authentication succeeded
local  IP address 192.168.101.12
remote IP address 192.168.101.1
"""
XL2TPD = """\
xl2tpd[850]: Connecting to host 203.0.113.9, port 1702
"""


def verdict(ppp: str = "", daemon: str = "", *, was_online: bool = False) -> tuple[Cause, str]:
    found = diagnosis.verdict(DIAL, was_online=was_online, ppp_log=ppp, daemon_log=daemon)
    return found.cause, str(found)


@pytest.mark.parametrize(
    ("ppp", "cause", "reason"),
    [
        (
            "MS-CHAP authentication failed: Access denied\nCHAP authentication failed\n"
            "Connection terminated.\n",
            Cause.WRONG_PASSWORD,
            "the server refused the user name or password: Access denied",
        ),
        (
            "CHAP authentication failed: no such user\n",
            Cause.WRONG_PASSWORD,
            "the server refused the user name or password",
        ),
        (
            "PAP authentication failed\n",
            Cause.WRONG_PASSWORD,
            "the server refused the user name or password",
        ),
        (
            "CHAP authentication failed due to protocol-reject\n",
            Cause.REFUSED,
            "the server takes no kind of password that this line may use",
        ),
        (
            "CHAP authentication succeeded\nMPPE required but peer negotiation failed\n",
            Cause.REFUSED,
            "the server does not encrypt PPTP with 128 bits (MPPE)",
        ),
        (
            "MPPE required, but MS-CHAP[v2] nor EAP-TLS auth are performed.\n",
            Cause.REFUSED,
            "the server does not ask for MS-CHAPv2, without which PPTP is not encrypted",
        ),
        (
            "MPPE required, but kernel has no support.\n",
            Cause.MISSING,
            "the kernel cannot encrypt PPTP: it has no module ppp_mppe",
        ),
        (
            "Could not determine local IP address\n",
            Cause.REFUSED,
            "the server gave no IP address",
        ),
        (
            "LCP terminated by peer (too many sessions)\n",
            Cause.REFUSED,
            "the server ended the line: too many sessions",
        ),
    ],
)
def test_pppd_messages_become_a_cause_and_a_reason(ppp: str, cause: Cause, reason: str) -> None:
    assert verdict(BEGINNING + ppp) == (cause, reason)


@pytest.mark.parametrize(
    ("daemon", "cause", "reason"),
    [
        (
            "xl2tpd[832]: Maximum retries exceeded for tunnel 47644.  Closing.\n"
            "xl2tpd[832]: Connection 0 closed to 203.0.113.9, port 1702 (Timeout)\n",
            Cause.UNREACHABLE,
            "no L2TP server answers at 203.0.113.9 port 1702",
        ),
        (
            "xl2tpd[1]: Connection closed to 203.0.113.9, port 1702 (No such user), Local: 1\n",
            Cause.REFUSED,
            "the server closed the connection: No such user",
        ),
        (
            "pptp warn[open_inetsock:pptp_callmgr.c:352]: connect: Connection refused\n"
            "pptp fatal[callmgr_main:pptp_callmgr.c:134]: Could not open control connection\n",
            Cause.UNREACHABLE,
            "no PPTP server answers at 203.0.113.9: Connection refused",
        ),
        (
            "unshare: unshare failed: Operation not permitted\n",
            Cause.FAILED,
            "its daemons may not have mounts of their own: unshare failed: Operation not permitted",
        ),
    ],
)
def test_messages_of_daemons_around_pppd_become_a_cause_and_a_reason(
    daemon: str, cause: Cause, reason: str
) -> None:
    assert verdict("", XL2TPD + daemon) == (cause, reason)


def test_the_cause_from_pppd_takes_precedence() -> None:
    cause, _ = verdict(
        "CHAP authentication failed\n", "xl2tpd[1]: Connection closed to 1.2.3.4, serial 1 ()\n"
    )
    assert cause is Cause.WRONG_PASSWORD


@pytest.mark.parametrize(
    ("ppp", "reason"),
    [
        ("No response to 3 echo-requests\n", "the server stopped answering"),
        ("LCP terminated by peer (User request)\n", "the server ended the line: User request"),
        ("", "its daemon ended"),
    ],
)
def test_a_line_that_was_online_is_lost(ppp: str, reason: str) -> None:
    assert verdict(BEGINNING + ADDRESSED + ppp, XL2TPD, was_online=True) == (Cause.LOST, reason)


def test_an_unknown_message_is_quoted_as_the_reason() -> None:
    cause, reason = verdict(BEGINNING + "The moon is in the way\nConnection terminated.\n")
    assert (cause, reason) == (Cause.FAILED, "its daemon ended: The moon is in the way")


def test_messages_of_a_server_are_sanitised() -> None:
    _, reason = verdict(f"LCP terminated by peer (\x1b[2J{'x' * 500})\n")
    assert reason == f"the server ended the line: [2J{'x' * 117}"


@pytest.mark.parametrize(
    ("log", "is_over"),
    [
        (XL2TPD, False),
        (XL2TPD + "xl2tpd[1]: Call established with 203.0.113.9, Local: 1, Remote: 2\n", False),
        (XL2TPD + "xl2tpd[1]: child_handler : pppd exited for call 23593 with code 19\n", True),
        (XL2TPD + "xl2tpd[1]: Maximum retries exceeded for tunnel 4.  Closing.\n", True),
        (XL2TPD + "xl2tpd[1]: control_finish: Connection closed to 1.2.3.4, serial 1 ()\n", True),
    ],
)
def test_the_end_of_a_line_is_recognised_while_xl2tpd_continues(log: str, is_over: bool) -> None:
    assert diagnosis.is_over(log) is is_over


def test_resolvers_are_known_once_the_address_is_known() -> None:
    assert diagnosis.resolvers(BEGINNING) is None
    assert diagnosis.resolvers(BEGINNING + ADDRESSED) == ()
    dns = "primary   DNS address 192.168.101.1\nsecondary DNS address 9.9.9.9\n"
    assert diagnosis.resolvers(BEGINNING + ADDRESSED + dns) == ("192.168.101.1", "9.9.9.9")


# --- IPsec. -------------------------------------------------------------------------------

FIRST = [
    "initiating Main Mode IKE_SA line-1[1] to 203.0.113.9",
    "generating ID_PROT request 0 [ SA V V V V V ]",
    "sending packet: from 198.51.100.2[500] to 203.0.113.9[500] (356 bytes)",
]
AGREED = [
    *FIRST,
    "parsed ID_PROT response 0 [ SA V V V V ]",
    "generating ID_PROT request 0 [ KE No NAT-D NAT-D ]",
    "parsed ID_PROT response 0 [ KE No NAT-D NAT-D ]",
]
PROVING = [*AGREED, "generating ID_PROT request 0 [ ID HASH ]"]
GIVEN_UP = ["giving up after 3 retransmits", "establishing IKE_SA failed, peer not responding"]


def retransmits(seq: int, message: str = "0") -> list[str]:
    told = (f"sending retransmit {n} of request message ID {message}, seq {seq}" for n in (1, 2, 3))
    return [*told, *GIVEN_UP]


@pytest.mark.parametrize("said", [[], FIRST, AGREED, PROVING, [*FIRST, *retransmits(1)[:2]]])
def test_ike_messages_of_a_pending_negotiation_give_no_verdict(said: list[str]) -> None:
    assert diagnosis.ike_verdict(DIAL, said) is None


@pytest.mark.parametrize(
    ("said", "cause", "reason"),
    [
        (
            [*FIRST, *retransmits(1)],
            Cause.UNREACHABLE,
            "no IPsec server answers at 203.0.113.9",
        ),
        (
            [*AGREED, *retransmits(2)],
            Cause.UNREACHABLE,
            "no IPsec server answers at 203.0.113.9",
        ),
        (
            [*PROVING, "invalid HASH_V1 payload length, decryption failed?",
             "could not decrypt payloads"],
            Cause.WRONG_SECRET,
            "the server refused the IPsec secret",
        ),
        (
            [*PROVING, *retransmits(3)],
            Cause.WRONG_SECRET,
            "the server refused the IPsec secret",
        ),
        (
            [*PROVING, *retransmits(4, "1234567")],
            Cause.UNREACHABLE,
            "no IPsec server answers at 203.0.113.9",
        ),
        (
            [*PROVING, "received AUTHENTICATION_FAILED error notify"],
            Cause.WRONG_SECRET,
            "the server refused the IPsec secret",
        ),
        (
            [*FIRST, "received NO_PROPOSAL_CHOSEN error notify"],
            Cause.REFUSED,
            "the server accepts none of the IPsec encryptions offered",
        ),
        (
            [*PROVING, "unable to install inbound and outbound IPsec SA (SAD) in kernel"],
            Cause.MISSING,
            "the kernel cannot do IPsec (module esp4): unable to install inbound and outbound "
            "IPsec SA (SAD) in kernel",
        ),
    ],
)  # fmt: skip
def test_ike_messages_become_a_cause_and_a_reason(
    said: list[str], cause: Cause, reason: str
) -> None:
    found = diagnosis.ike_verdict(DIAL, said)
    assert found is not None
    assert (found.cause, str(found)) == (cause, reason)
