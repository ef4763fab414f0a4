"""The daemons' original output, and the diagnosis from it."""

from __future__ import annotations

import time

import msgspec
import pytest

from egressd.model.wording import as_sentence
from egressd.netd.lines import diagnosis
from egressd.netd.lines.diagnosis import IkeTalk
from egressd.netd.lines.failure import AccountInUse, Cause, Declined, Failure, IkeStage, Unproved
from egressd.planner.lines.dial import Dial
from tests.netd.lines.rig import DIAL

TOLD = as_sentence("told")

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
ESTABLISHED = "xl2tpd[850]: Connection established to 203.0.113.9, 1702.  Local: 1, Remote: 2\n"


PPTP = msgspec.structs.replace(
    DIAL, line=msgspec.structs.replace(DIAL.line, type="pptp", name="pptp_1", port=1723)
)


def verdict(
    ppp: str = "", daemon: str = "", *, was_online: bool = False, dial: Dial = DIAL
) -> tuple[Cause, str]:
    found = diagnosis.verdict(dial, was_online=was_online, ppp_log=ppp, daemon_log=daemon)
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
            "CHAP authentication failed: no such user\nCHAP authentication failed\n",
            Cause.WRONG_PASSWORD,
            "the server refused the user name or password: no such user",
        ),
        (
            "CHAP authentication failed\n",
            Cause.WRONG_PASSWORD,
            "the server refused the user name or password",
        ),
        (
            "Remote message: Login incorrect\nPAP authentication failed\n",
            Cause.WRONG_PASSWORD,
            "the server refused the user name or password: Login incorrect",
        ),
        (
            "PAP authentication failed\n",
            Cause.WRONG_PASSWORD,
            "the server refused the user name or password",
        ),
        (
            "No response to PAP authenticate-requests\n",
            Cause.UNREACHABLE,
            "the server does not answer the login",
        ),
        (
            "MS-CHAPv2 mutual authentication failed.\nCHAP authentication failed\n",
            Cause.REFUSED,
            "the server does not know the password itself, and may be another than it should be",
        ),
        (
            "Remote message: Welcome\nPAP authentication succeeded\n"
            "IPCP: timeout sending Config-Requests\n",
            Cause.REFUSED,
            "the server gave no IP address",
        ),
        (
            "local  IP address 10.9.9.1\nremote IP address 10.9.9.1\n",
            Cause.REFUSED,
            "the server gives both ends of the line one address, 10.9.9.1",
        ),
        (
            "LCP: timeout sending Config-Requests\n",
            Cause.UNREACHABLE,
            "the L2TP server takes the call, but no PPP comes from it",
        ),
        (
            "LCP terminated by peer (MPPE required but peer negotiation failed)\n",
            Cause.REFUSED,
            "the server wants MPPE inside L2TP, which egressd does not do",
        ),
        (
            "rcvd [CCP ConfReq id=0x1 <mppe +H -M +S -L -D -C>]\n"
            "sent [LCP ProtRej id=0x2 80 fd 01 01 00 0a 12 06 01 00 00 40]\n"
            "rcvd [LCP TermReq id=0x2]\nLCP terminated by peer\nsent [LCP TermAck id=0x2]\n",
            Cause.REFUSED,
            "the server wants MPPE inside L2TP, which egressd does not do",
        ),
        (
            "rcvd [LCP ConfReq id=0x9 <mru 1400> <auth eap> <magic 0x7c4f87f>]\n"
            "sent [LCP ConfRej id=0x9 <auth eap>]\n"
            'rcvd [LCP TermReq id=0xa "peer refused to authenticate"]\nsent [LCP TermAck id=0xa]\n',
            Cause.REFUSED,
            "the server insists on EAP, by which lines do not log in",
        ),
        (
            'rcvd [LCP TermReq id=0xa "no more \\"lines\\""]\nsent [LCP TermAck id=0xa]\n',
            Cause.REFUSED,
            'the server ended the line: no more \\"lines\\"',
        ),
        (
            "CHAP authentication failed due to protocol-reject\n",
            Cause.REFUSED,
            "the server takes no kind of password that this line may use",
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
    ("ppp", "cause", "reason"),
    [
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
            "MPPE disabled\nLCP terminated by peer\n",
            Cause.REFUSED,
            "the server does not encrypt PPTP with 128 bits (MPPE)",
        ),
        (
            "LCP terminated by peer (MPPE required but peer negotiation failed)\n",
            Cause.REFUSED,
            "the server ended the line: MPPE required but peer negotiation failed",
        ),
        (
            "pptp warn[open_inetsock:pptp_callmgr.c:352]: connect: Connection refused\n"
            "pptp fatal[callmgr_main:pptp_callmgr.c:134]: Could not open control connection to "
            "203.0.113.9\npptp fatal[open_callmgr:pptp.c:525]: Call manager exited with error 256\n"
            "Modem hangup\nConnection terminated.\n",
            Cause.UNREACHABLE,
            "no PPTP server answers at 203.0.113.9: Connection refused",
        ),
        (
            "Connect: pptp_1 <--> /dev/pts/0\nScript exec /usr/sbin/pptp 203.0.113.9 finished\n"
            "Modem hangup\nConnection terminated.\n",
            Cause.REFUSED,
            "the PPTP server ended the call",
        ),
        (
            "LCP: timeout sending Config-Requests\nConnection terminated.\n",
            Cause.UNREACHABLE,
            "the PPTP server takes the call by TCP, but no GRE comes from it: something on the way "
            "drops IP protocol 47",
        ),
        (
            "rcvd [LCP ConfReq id=0x1 <asyncmap 0x0> <auth pap> <magic 0x2>]\n"
            "sent [LCP ConfRej id=0x1 <auth pap>]\n"
            'rcvd [LCP TermReq id=0x2 "peer refused to authenticate"]\n'
            "LCP terminated by peer (peer refused to authenticate)\n",
            Cause.REFUSED,
            "the server does not ask for MS-CHAPv2, without which PPTP is not encrypted",
        ),
    ],
)
def test_pppds_log_gives_the_reason_of_a_pptp_line(ppp: str, cause: Cause, reason: str) -> None:
    assert verdict(BEGINNING + ppp, dial=PPTP) == (cause, reason)


def test_a_servers_words_are_no_other_daemons() -> None:
    """Nor is a sentence one of the other kind of line."""
    said = "MPPE required, but kernel has no support.", "pptp fatal[a]: connect: x"
    for words in said:
        assert verdict(f"LCP terminated by peer (no; {words})\n", dial=PPTP)[1].startswith(
            "the server ended the line: no; "
        )
    assert verdict("MPPE required, but kernel has no support.\n") == (
        Cause.MISSING,
        "the kernel cannot encrypt PPTP: it has no module ppp_mppe",
    )
    assert verdict("pptp warn[a:b]: connect: Connection refused\n")[0] is Cause.FAILED
    cut = "xl2tpd[1]: control_finish: Connection closed to 1.2.3.4, serial 1 (a\nunshare: b)\n"
    assert verdict("", cut) == (Cause.REFUSED, "the server closed the connection: a")


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
            "xl2tpd[1]: Connection closed to 203.0.113.9, port 1702 (No such user), Local: 1, "
            "Remote: 2\n",
            Cause.REFUSED,
            "the server closed the connection: No such user",
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


@pytest.mark.parametrize(
    ("daemon", "cause", "reason"),
    [
        (
            "Connection established to 203.0.113.9, 1702.  Local: 1, Remote: 3 (ref=0/0).\n"
            "xl2tpd[1]: Maximum retries exceeded for tunnel 1.  Closing.\n",
            Cause.UNREACHABLE,
            "the L2TP server does not answer the call",
        ),
        (
            "control_finish: No secret for authenticating to 'odd'\n"
            "xl2tpd[1]: Connection 3 closed to 203.0.113.9, port 1702 (No secret key on our end)\n",
            Cause.REFUSED,
            "the server wants a secret of L2TP's own, beside IPsec's, which lines do not have",
        ),
        (
            "message_type_avp: message type 14 (Call-Disconnect-Notify)\n"
            "xl2tpd[1]: result_code_avp: peer closing for reason 4 (Requester is not authorized to "
            "establish a control channel), error = 0 ()\n"
            "xl2tpd[1]: control_finish: Connection closed to 203.0.113.9, serial 1 ()\n",
            Cause.REFUSED,
            "the server has no room for the call at the moment",
        ),
        (
            "message_type_avp: message type 4 (Stop-Control-Connection-Notification)\n"
            "xl2tpd[1]: result_code_avp: peer closing for reason 6 (Requester is being shut "
            "down), error = 0 ()\n"
            "xl2tpd[1]: control_finish: Connection closed to 203.0.113.9, port 1702 (), "
            "Local: 1, Remote: 3\n",
            Cause.REFUSED,
            "the server is being shut down",
        ),
        (
            "result_code_avp: peer closing for reason 2 (General error--Error Code indicates the "
            "problem), error = 4 (No Sundays)\n"
            "xl2tpd[1]: control_finish: Connection closed to 203.0.113.9, serial 1 (No Sundays)\n",
            Cause.REFUSED,
            "the server closed the connection: No Sundays",
        ),
    ],
)
def test_xl2tpd_messages_become_a_cause_and_a_reason(
    daemon: str, cause: Cause, reason: str
) -> None:
    assert verdict("", f"{XL2TPD}xl2tpd[1]: {daemon}") == (cause, reason)


@pytest.mark.parametrize(
    ("said", "is_in_use"),
    [
        ("You are already logged in - access denied", True),
        ("user office: Simultaneous-Use exceeded", True),
        ("No more than one session: too many sessions", True),
        ("Maximum number of connections reached", True),
        ("You are already logged in 2 times - access denied", True),
        ("no more sessions are allowed for user", True),
        ("Your account is in use at another place", True),
        ("concurrent session limit of 1 reached", True),
        ("user office has reached its session limit", True),
        ("Only one login at the same time: limit reached", True),
        ("Too many failed login attempts", False),
        ("Too many login attempts, try again later", False),
        ("Maximum login failures exceeded", False),
        ("User's data limit exceeded", False),
        ("user has reached the limit of 20 GB", False),
        ("session time limit exceeded", False),
        ("Your monthly traffic limit is reached, dear user", False),
        ("The connection rate limit of users", False),
        ("Access denied", False),
        ("", False),
    ],
)
def test_a_server_may_say_that_an_account_is_in_use(said: str, is_in_use: bool) -> None:
    for cause in (Cause.WRONG_PASSWORD, Cause.REFUSED):
        failure = Failure(cause, as_sentence("the server says so"), said)
        found = diagnosis.reconsidered(failure, "203.0.113.9", is_proven=False)
        assert isinstance(found, AccountInUse) is is_in_use


def test_a_password_that_has_worked_is_not_called_wrong() -> None:
    def found(failure: Failure) -> tuple[Cause, str]:
        made = diagnosis.reconsidered(failure, "203.0.113.9", is_proven=True)
        return made.cause, str(made)

    in_use = (Cause.REFUSED, "the account may still be in use at the server")
    assert found(Failure(Cause.WRONG_PASSWORD, TOLD)) == in_use
    for words in ("Too many failed login attempts", "The account is locked", "3 login failures"):
        assert found(Failure(Cause.WRONG_PASSWORD, TOLD, words)) == (Cause.WRONG_PASSWORD, "told")
    assert found(Unproved(TOLD)) == (Cause.UNREACHABLE, SILENT)
    for failure in (
        Failure(Cause.LOST, TOLD, "already logged in"),
        Failure(Cause.WRONG_SECRET, TOLD),
        Failure(Cause.REFUSED, TOLD),
    ):
        assert found(failure) == (failure.cause, "told")


@pytest.mark.parametrize(
    ("ppp", "daemon", "code", "values"),
    [
        ("CHAP authentication failed\n", "", "login-refused", {}),
        (
            "CHAP authentication failed: No {name}\n",
            "",
            "login-refused-saying",
            {"said": "No {name}"},
        ),
        (
            "local  IP address 10.0.0.1\nremote IP address 10.0.0.1\n",
            "",
            "one-address-given",
            {"address": "10.0.0.1"},
        ),
        (
            "",
            "xl2tpd[1]: Maximum retries exceeded for tunnel 1.  Closing.\n",
            "no-l2tp-server",
            {"server": "203.0.113.9", "port": 1702},
        ),
        ("", "it is odd\n", "daemon-ended-saying", {"said": "it is odd"}),
    ],
)
def test_a_reason_has_a_code_and_values(
    ppp: str, daemon: str, code: str, values: dict[str, object]
) -> None:
    reason = diagnosis.verdict(DIAL, was_online=False, ppp_log=ppp, daemon_log=daemon).reason
    assert (reason.code, reason.values) == (code, values)


def test_the_reason_of_a_lost_line_keeps_its_code() -> None:
    log = "No response to 4 echo-requests\n"
    reason = diagnosis.verdict(DIAL, was_online=True, ppp_log=log, daemon_log="").reason
    assert (reason.code, str(reason)) == (
        "server-stopped-answering",
        "the server stopped answering",
    )
    assert (
        diagnosis.verdict(DIAL, was_online=True, ppp_log="", daemon_log="").reason
        == "its daemon ended"
    )


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
    "log",
    [
        # pppd cuts a sentence at 1,023 bytes, and a packet at 255 a line.
        f"LCP terminated by peer (no {'x' * 996}\n",
        f'rcvd [LCP TermReq id=0x2 "no {"x" * 223}\n{"x" * 255}\nxx"]\nsent [LCP TermAck id=0x2]\n',
        f'rcvd [LCP TermReq id=0x2 "no {"x" * 223}\nxx"]\nLCP terminated by peer (no {"x" * 225}',
    ],
)
def test_long_words_are_reported_though_pppd_cuts_them(log: str) -> None:
    assert verdict(log) == (Cause.REFUSED, f"the server ended the line: no {'x' * 117}")


@pytest.mark.parametrize(
    "line",
    [
        "rcvd [CCP ConfReq id=0x1 <mppe +H -M +S -L -D -C>]\n",
        "xl2tpd[1]: message_type_avp: message type 14 (Call-Disconnect-Notify)\n",
        "xl2tpd[1]: Connection established to 203.0.113.9, 1702.\n",
        'rcvd [LCP TermReq id=0xa "again"]\n',
        'rcvd [LCP TermReq id=0xa "a"b"c]"\n',
        "LCP terminated by peer )\n",
        "local  IP address 10.9.9.1\n",
        "\n",
        "MS-CHAP authentication failed: \n",
    ],
)
@pytest.mark.slow
def test_a_server_that_goes_on_and_on_does_not_hold_netd_up(line: str) -> None:
    """It can have its daemons log any of these as often as it likes."""
    log = line * (65536 // len(line))
    began = time.process_time()
    for dial in (DIAL, PPTP):
        verdict(log, log, dial=dial)
        diagnosis.is_over(log, log)
    assert time.process_time() - began < 1.0


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
    assert diagnosis.is_over("", log) is is_over


@pytest.mark.parametrize(
    ("log", "is_over"),
    [
        (BEGINNING + ADDRESSED, False),
        (BEGINNING + "LCP: timeout sending Config-Requests\n", True),
        ("local  IP address 10.9.9.1\nremote IP address 10.9.9.1\n", True),
        ("local  IP address 10.9.9.1\nremote IP address 10.9.9.10\n", False),
        ('rcvd [LCP TermReq id=0xa "again"]\nsent [LCP TermAck id=0xa]\n' * 2, False),
        ('rcvd [LCP TermReq id=0xa "again"]\nsent [LCP TermAck id=0xa]\n' * 3, True),
    ],
)
def test_the_end_of_a_line_is_recognised_while_pppd_continues(log: str, is_over: bool) -> None:
    assert diagnosis.is_over(log, XL2TPD) is is_over


@pytest.mark.parametrize(
    ("ppp", "daemon", "reason"),
    [
        ("", "", "203.0.113.9 took too long to set the line up"),
        ("", ESTABLISHED, "the L2TP server does not answer the call"),
        (BEGINNING, ESTABLISHED, "203.0.113.9 took too long to set the line up"),
        (
            f'{BEGINNING}sent [CHAP Response id=0x1 <00>, name = "u"]\n',
            ESTABLISHED,
            "the server does not answer the login",
        ),
        (f"{BEGINNING}CHAP authentication succeeded\n", "", "the server gave no IP address"),
        # An endless log's last part.
        (
            "rcvd [IPCP ConfNak id=0x77 <addr 83.21.4.9>]\n"
            "sent [IPCP ConfReq id=0x78 <addr 83.21.4.9>]\n",
            ESTABLISHED,
            "the server gave no IP address",
        ),
    ],
)
def test_the_reason_names_the_last_step_that_a_line_reached(
    ppp: str, daemon: str, reason: str
) -> None:
    found = diagnosis.unfinished(DIAL, ppp, XL2TPD + daemon)
    assert (found.cause, str(found)) == (Cause.UNREACHABLE, reason)


def test_resolvers_are_those_that_pppd_writes_down() -> None:
    assert diagnosis.resolvers("") == ()
    both = "nameserver 192.168.101.1\nnameserver 9.9.9.9\n"
    assert diagnosis.resolvers(both) == ("192.168.101.1", "9.9.9.9")
    assert diagnosis.resolvers("nameserver 9.9.9.9\n" * 2) == ("9.9.9.9",)


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
QUICK = "generating QUICK_MODE request 1234567 [ HASH SA No ID ID ]"
UNDECRYPTED = [
    "invalid HASH_V1 payload length, decryption failed?",
    "could not decrypt payloads",
    "message parsing failed",
]
UNDECRYPTED_ANSWER = [
    *UNDECRYPTED,
    "ignore malformed INFORMATIONAL request",
    "INFORMATIONAL_V1 request with message ID 1371834 processing failed",
]
UNDECRYPTED_RENEWAL = [
    *UNDECRYPTED,
    "QUICK_MODE request with message ID 29304182 processing failed",
]
"""A server that goes on with an earlier association's keys. Past fault: this was a wrong secret."""
GIVEN_UP = ["giving up after 3 retransmits", "establishing IKE_SA failed, peer not responding"]


def retransmits(seq: int, message: str = "0") -> list[str]:
    told = (f"sending retransmit {n} of request message ID {message}, seq {seq}" for n in (1, 2, 3))
    return [*told, *GIVEN_UP]


def heard(*said: str) -> Failure | None:
    """Return the result of these messages of charon about one attempt."""
    talk = IkeTalk(DIAL)
    return next((failure for message in said if (failure := talk.hear(message))), None)


@pytest.mark.parametrize(
    "said",
    [
        [],
        FIRST,
        AGREED,
        PROVING,
        [*FIRST, *retransmits(1)[:2]],
        UNDECRYPTED_ANSWER,
        [*PROVING, *UNDECRYPTED_RENEWAL],
        [*FIRST, "received DELETE for IKE_SA group-0[77]"],
    ],
)
def test_ike_messages_of_a_pending_negotiation_give_no_verdict(said: list[str]) -> None:
    assert heard(*said) is None


NONE_TAKEN = "the server accepts none of the IPsec encryptions offered"
SILENT = "no IPsec server answers at 203.0.113.9"
NO_PROPOSAL = "received NO_PROPOSAL_CHOSEN error notify"
BY_NAT = "sending packet: from 198.51.100.2[4500] to 203.0.113.9[4500] (108 bytes)"
ENDED = "received DELETE for IKE_SA line-1[1]"


@pytest.mark.parametrize(
    ("said", "stage", "is_said", "reason"),
    [
        ([*FIRST, NO_PROPOSAL], IkeStage.IKE, True, NONE_TAKEN),
        ([*PROVING, QUICK, NO_PROPOSAL], IkeStage.ESP, True, NONE_TAKEN),
        ([*PROVING, QUICK, ENDED], IkeStage.ESP, True, NONE_TAKEN),
        ([*FIRST, *retransmits(1)], IkeStage.IKE, False, SILENT),
        ([*PROVING, QUICK, *retransmits(4, "1234567")], IkeStage.ESP, False, SILENT),
    ],
)
def test_a_server_that_takes_nothing_of_an_offer_gets_the_next(
    said: list[str], stage: IkeStage, is_said: bool, reason: str
) -> None:
    found = heard(*said)
    assert isinstance(found, Declined)
    assert (found.stage, found.is_said, str(found)) == (stage, is_said, reason)
    assert found.cause is (Cause.REFUSED if is_said else Cause.UNREACHABLE)


def test_a_secret_that_is_met_by_silence_is_not_surely_wrong() -> None:
    for way, reason in (
        ([], "the server refused the IPsec secret"),
        (
            [BY_NAT],
            "the server does not answer once the IPsec secret is used: it is wrong, or something "
            "on the way drops UDP port 4500",
        ),
    ):
        found = heard(*PROVING, *way, *retransmits(3))
        assert isinstance(found, Unproved)
        assert (found.cause, str(found)) == (Cause.WRONG_SECRET, reason)


@pytest.mark.parametrize(
    ("said", "cause", "reason"),
    [
        ([*AGREED, *retransmits(2)], Cause.UNREACHABLE, SILENT),
        (
            [*PROVING, *UNDECRYPTED_RENEWAL, *UNDECRYPTED_ANSWER],
            Cause.WRONG_SECRET,
            "the server refused the IPsec secret",
        ),
        (
            [*PROVING, "received AUTHENTICATION_FAILED error notify"],
            Cause.WRONG_SECRET,
            "the server refused the IPsec secret",
        ),
        (
            [*PROVING, QUICK, "received INVALID_ID_INFORMATION error notify"],
            Cause.REFUSED,
            "the server does not let this address use L2TP over IPsec",
        ),
        (
            [*FIRST, "received INVALID_MAJOR_VERSION error notify"],
            Cause.REFUSED,
            "the server refused IPsec: INVALID_MAJOR_VERSION",
        ),
        (
            [*FIRST, "received proposals unacceptable"],
            Cause.REFUSED,
            "the server answers with an IPsec encryption that was not offered",
        ),
        ([*PROVING, ENDED], Cause.REFUSED, "the server ended the IPsec association"),
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
    found = heard(*said)
    assert found is not None
    assert (found.cause, str(found)) == (cause, reason)


@pytest.mark.parametrize(
    ("in_udp", "was_tried", "end"),
    [
        (
            False,
            False,
            " through IPsec: something on the way may drop ESP (IP protocol 50), and UDP is tried "
            "in its place",
        ),
        (True, False, " through IPsec"),
        (True, True, ", neither by ESP nor by ESP in UDP"),
    ],
)
def test_silence_of_l2tp_through_ipsec_names_the_encapsulation(
    in_udp: bool, was_tried: bool, end: str
) -> None:
    found = diagnosis.unheard(DIAL, in_udp=in_udp, was_tried=was_tried)
    assert found.cause is Cause.UNREACHABLE
    assert str(found) == f"no L2TP server answers at 203.0.113.9 port 1702{end}"
