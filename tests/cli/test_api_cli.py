"""The commands that work over the API, against a device that serves it."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from egressd.cli import cli
from egressd.model.delays import Delay
from egressd.model.messages import InterfaceStatus, PageFetched, Status
from egressd.model.site import MemberSeen, MemberState, SiteReading
from egressd.model.wording import as_sentence
from egressd_lab.authority import Authority
from tests.cli.shell import listed

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow

SOCKS = json.dumps({"server": "203.0.113.7", "port": 1080, "username": "u", "password": "p"})


def test_rules_are_added_edited_and_deleted(shell: Shell) -> None:
    rules = shell.device.bench.rules
    assert shell.say(
        "rules", "add", "10.0.0.1", "DIRECT", "--comment", "tv", "--upload", "500"
    ) == ("rule for 10.0.0.1 created\n")
    shell.say("rules", "add", "10.0.0.0/24", "REJECT", "--disabled")
    shell.say("rules", "edit", "10.0.0.1", "--target", "REJECT")
    (rule, _) = rules.list()
    assert (rule.target_node, rule.comment, rule.upload_limit_kbps) == ("REJECT", "tv", 500)
    shell.say("rules", "edit", "10.0.0.1/32", "--new-ip", "10.0.0.2", "--upload", "0")
    shell.say("rules", "enable", "10.0.0.0/24")
    shell.say("rules", "disable", "10.0.0.2")
    assert listed(rules) == [("10.0.0.2", "REJECT", False), ("10.0.0.0/24", "REJECT", True)]
    assert shell.say("rules", "list").splitlines()[0] == "1\t10.0.0.2\tREJECT\tno\t0\t0\ttv"
    assert [row["ip"] for row in shell.json("rules", "list")] == ["10.0.0.2", "10.0.0.0/24"]
    assert shell.json("rules", "delete", "10.0.0.2", "10.0.0.0/24")["deleted"] == 2
    assert listed(rules) == []


def test_errors_of_the_device_are_printed(shell: Shell) -> None:
    assert "ip must be an IPv4 address" in shell.problem("rules", "add", "x", "DIRECT")
    told = shell.problem("rules", "add", "10.0.0.1", "DIRECT", "--upload", "-1")
    assert told.startswith("--upload must be a whole number")
    told = shell.problem("alerts", "add", "x", "ntfys://ntfy.example.org/x", "--via", "nowhere")
    assert told.startswith("--via must be")
    assert shell.problem("rules", "edit", "10.9.9.9") == "there is no rule for 10.9.9.9"
    assert shell.problem("nodes", "delete", "a", "b") == "there is no node a, b"
    assert shell.problem("lines", "enable", "l2tp_a") == "there is no line l2tp_a"
    assert shell.problem("proxies", "edit", "a") == "there is no proxy service a"
    assert "there is no node" in shell.run("nodes", "delay", "\udcff").output
    shell.token = "wrong"
    assert shell.problem("rules", "list") == "API Token invalid"
    shell.url = "http://127.0.0.1:1"
    assert "ask http://127.0.0.1:1" in shell.problem("rules", "list")
    for url in ("ftp://x", "http://127.0.0.1:99999", "http://127.0.0.1:x", "http://[::1"):
        shell.url = url
        assert "--url must be http" in shell.problem("rules", "list")
    shell.url = "http://a b"
    assert "ask http://a b" in shell.problem("rules", "list")


@pytest.mark.parametrize(
    "command",
    [
        "rules import",
        "nodes import",
        "nodes add a ss",
        "lines import pptp",
        "proxies import",
        "whitelist set --domains",
    ],
)
def test_a_file_in_another_encoding_is_refused(shell: Shell, tmp_path: Path, command: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes("10.0.0.1,DIRECT,客厅\n".encode("gbk"))
    told = shell.problem(*command.split(), str(file))
    assert told == f"{file} must be text in UTF-8: save it as such"


def test_an_empty_input_replaces_nothing(shell: Shell) -> None:
    shell.say("rules", "add", "10.0.0.1", "DIRECT")
    for kind in ("rules", "nodes", "proxies"):
        told = shell.problem(kind, "import", "-", "--replace", stdin="# nothing\n")
        assert told == "FILE must have a row where it is to replace all there are"
    assert [row["ip"] for row in shell.json("rules", "list")] == ["10.0.0.1"]


def test_private_servers_are_imported_with_an_option(shell: Shell) -> None:
    row = "192.168.8.40,1080,u,p,nas"
    for more in ((), ("--dry-run",)):
        told = shell.json("nodes", "import", "-", "--type", "socks5", *more, stdin=row)
        assert told["imported"] == 0
        assert "server must be on the internet" in str(told)
    private = ("nodes", "import", "-", "--type", "socks5", "--private-servers")
    assert shell.json(*private, "--dry-run", stdin=row)["imported"] == 1
    assert shell.json(*private, stdin=row)["imported"] == 1
    assert [node["name"] for node in shell.json("nodes", "list")] == ["nas"]


def test_spreadsheet_formulas_are_exported_as_text_and_read_back(shell: Shell) -> None:
    comment = "=1+1;@x"
    shell.say("rules", "add", "10.0.0.1", "DIRECT", "--comment", comment)
    written = shell.say("rules", "export")
    assert written == "10.0.0.1,DIRECT,'=1+1;'@x\n"
    shell.say("rules", "delete", "10.0.0.1")
    shell.say("rules", "import", "-", stdin=written)
    assert [row["comment"] for row in shell.json("rules", "list")] == [comment]


def test_confusable_names_and_local_servers_are_refused(shell: Shell) -> None:
    add = ("nodes", "add")
    shell.say(*add, "hk-01", "socks5", "-", stdin=SOCKS)
    alike = shell.problem(*add, "hk-0l", "socks5", "-", stdin=SOCKS)
    assert alike == "name must not look like another's: there is a node hk-01 already"
    for server in ("127.0.0.1", "::ffff:10.0.0.1", "0.0.0.0"):
        here = json.dumps({"server": server, "port": 1080})
        told = shell.problem(*add, "here", "socks5", "-", stdin=here)
        assert told == "config_json.server must not be this device itself"
    told = shell.problem(*add, "hex", "socks5", "-", stdin=SOCKS.replace("203.0.113.7", "0x7f.0x1"))
    assert told == "config_json.server must be a host name or an IP address"


def test_a_file_without_a_certificate_is_refused(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate\n")
    shell.url = "https://127.0.0.1:1"
    told = shell.problem("rules", "list", "--cacert", str(file))
    assert told.startswith("--cacert must name a file of certificates in PEM: ")


class _Device(BaseHTTPRequestHandler):
    """Has no rules."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": []}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("strict", [True, False])
def test_the_given_authority_is_trusted(shell: Shell, tmp_path: Path, strict: bool) -> None:
    authority = Authority(tmp_path, strict=strict)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.certificate("127.0.0.1"))
    with HTTPServer(("127.0.0.1", 0), _Device) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            shell.url = f"https://127.0.0.1:{server.server_port}"
            assert "CERTIFICATE_VERIFY_FAILED" in shell.problem("rules", "list")
            assert shell.json("rules", "list", "--cacert", str(authority.file)) == []
        finally:
            server.shutdown()
            serving.join()


def test_the_token_of_this_device_is_sent_to_no_other(shell: Shell, tmp_path: Path) -> None:
    (shell.folder / "token").write_text("of this device\n")
    config = tmp_path / "egressd.toml"
    config.write_text(f'[data]\ndir = "{shell.folder.parent}"\n[api]\nlisten = "127.0.0.1:1"\n')
    command = ["rules", "list", "--config", str(config)]
    away = CliRunner(env={"EGRESSD_URL": shell.url, "EGRESSD_TOKEN": None}).invoke(cli, command)
    assert "that takes its token, in EGRESSD_TOKEN" in str(away.exception)
    here = CliRunner(env={"EGRESSD_URL": None, "EGRESSD_TOKEN": None}).invoke(cli, command)
    assert str(here.exception) == "API Token invalid"  # it was sent
    given = CliRunner(env={"EGRESSD_URL": None, "EGRESSD_TOKEN": shell.token}).invoke(cli, command)
    assert given.exit_code == 0
    (shell.folder / "token").unlink()
    given = CliRunner(env={"EGRESSD_URL": None, "EGRESSD_TOKEN": shell.token}).invoke(cli, command)
    assert given.exit_code == 0, "nobody has to read it then"


def test_exported_rules_are_imported_unchanged(shell: Shell) -> None:
    shell.say("rules", "add", "10.0.0.1", "DIRECT", "--comment", 'a, "b"')
    shell.say("rules", "add", "10.0.1.0/24", "REJECT", "--download", "5")
    result = shell.run("rules", "export")
    assert result.stderr == "rows have no place for the limits of 1 rules\n"
    before = shell.json("rules", "list")
    shell.say("rules", "delete", "10.0.0.1", "10.0.1.0/24")
    assert shell.say("rules", "import", "-", stdin=result.stdout) == "2 rules imported, 0 skipped\n"
    after = shell.json("rules", "list")
    for field in ("ip", "target_node", "comment"):
        assert [row[field] for row in after] == [row[field] for row in before]


def test_a_dry_run_changes_nothing(shell: Shell) -> None:
    rows = "10.0.0.1,DIRECT\nbad,DIRECT\n"
    said = shell.say("rules", "import", "-", "--dry-run", stdin=rows)
    assert said.splitlines()[0].startswith("line 2: ip must be")
    assert said.splitlines()[1] == "1 would be imported, 1 skipped"
    assert shell.json("rules", "list") == []


def test_a_node_is_rotated_by_its_page(shell: Shell) -> None:
    netd = shell.device.bench.netd
    exits = iter(("203.0.113.1", "203.0.113.2"))
    netd.page = lambda _: PageFetched()
    netd.delay_of = lambda _: Delay(delay=1, page=f"ip={next(exits)}\n".encode())
    shell.say("nodes", "add", "tokyo", "socks5", "-", stdin=SOCKS)
    assert "has no change_ip_url" in shell.problem("nodes", "rotate", "tokyo")
    page = "https://seller.test/change?key=k"
    said = shell.say("nodes", "edit", "tokyo", "--change-ip-url", "-", stdin=f"{page}\n")
    assert said == "node tokyo saved\n"
    assert shell.say("nodes", "rotate", "tokyo") == "203.0.113.2\n"
    assert [asked.url for asked in netd.pages_asked] == [page]
    netd.is_away = True
    assert "netd" in shell.problem("nodes", "rotate", "tokyo")
    netd.is_away = False
    shell.say("nodes", "edit", "tokyo", "--change-ip-url", "")
    assert shell.device.bench.nodes.list()[0].change_ip_url == ""


def test_a_node_is_added_with_its_page(shell: Shell, tmp_path: Path) -> None:
    page, file = "https://seller.test/change?key=k", tmp_path / "node.json"
    file.write_text(SOCKS)
    add = ("nodes", "add", "tokyo", "socks5", str(file), "--change-ip-url", "-")
    said = shell.say(*add, "--change-ip-via", "DIRECT", "--group", "asia", stdin=f"{page}\n")
    assert said == "node tokyo created\n"
    (node,) = shell.device.bench.nodes.list()
    assert (node.change_ip_url, node.change_ip_via, node.group) == (page, "DIRECT", "asia")


def test_nodes_are_exported_as_links_and_imported_again(shell: Shell) -> None:
    shell.say("nodes", "add", "tokyo", "socks5", "-", "--group", "asia", stdin=SOCKS)
    shell.say("nodes", "edit", "tokyo", "--name", "osaka")
    shell.say("nodes", "set", "osaka", "--interface", "wan1", "--group", "jp")
    result = shell.run("nodes", "export")
    assert result.stdout.startswith("socks5://u:p@203.0.113.7:1080")
    assert result.stderr == "osaka: not in the link: interface-name\n"
    (full,) = shell.json("nodes", "export")
    assert (full["name"], full["group"]) == ("osaka", "jp")
    shell.say("nodes", "delete", "osaka")
    assert shell.say("nodes", "import", "-", "--group", "x", stdin=result.stdout).startswith(
        "1 node"
    )
    assert shell.say("nodes", "list").split("\t")[1:4] == ["osaka", "socks5", "x"]


def test_delays_are_measured_and_a_failure_sets_the_exit_status(shell: Shell) -> None:
    for name in ("a", "b", "c"):
        shell.say("nodes", "add", name, "socks5", "-", stdin=SOCKS)
    assert shell.say("nodes", "delay") == "a\t42\t\nb\t42\t\nc\t42\t\n"
    shell.device.bench.netd.delay_of = lambda probe: (
        Delay(delay=-1, error=as_sentence("timed out")) if probe.name == "b" else Delay(delay=7)
    )
    result = shell.run("nodes", "delay", "b", "c")
    assert result.exit_code == 1
    assert result.stdout == "b\t-1\ttimed out\nc\t7\t\n"


def test_lines_are_managed_by_name(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGRESSD_LINE_PASSWORD", "hidden")
    shell.say("lines", "add", "l2tp_tokyo", "vpn.example.com", "user", "--secret", "s")
    shell.say("lines", "edit", "l2tp_tokyo", "--name", "l2tp_osaka", "--interface", "wan1")
    shell.say("lines", "disable", "l2tp_osaka")
    (line,) = shell.json("lines", "list")
    assert (line["name"], line["is_enabled"], line["interface"]) == ("l2tp_osaka", False, "wan1")
    assert line["password"] == "hidden"
    rows = shell.say("lines", "export", "l2tp")
    assert rows == "vpn.example.com,1701,user,hidden,s,l2tp_osaka,\n"
    shell.say("lines", "delete", "l2tp_osaka")
    assert shell.json("lines", "import", "l2tp", "-", stdin=rows)["imported"] == 1
    (line,) = shell.json("lines", "list")
    assert (line["name"], line["secret"]) == ("l2tp_osaka", "s")


def test_entries_are_added_to_and_removed_from_the_whitelist(shell: Shell, tmp_path: Path) -> None:
    shell.say("whitelist", "add", "a.test", "192.0.2.0/24", "https://b.test:8443")
    shell.say("whitelist", "add", "a.test")
    assert shell.say("whitelist", "show").splitlines() == [
        "node: DIRECT",
        "a.test",
        "https://b.test:8443",
        "192.0.2.0/24",
    ]
    shell.say("whitelist", "delete", "a.test", "192.0.2.0/24")
    assert shell.json("whitelist", "show") == {
        "domains": "https://b.test:8443",
        "ips": "",
        "node": "DIRECT",
    }
    (tmp_path / "list").write_text("c.test\nd.test\n")
    shell.say("whitelist", "set", "--domains", str(tmp_path / "list"))
    assert shell.say("whitelist", "show").splitlines()[1:] == ["c.test", "d.test"]


def test_exported_proxy_services_are_imported_unchanged(shell: Shell) -> None:
    shell.say("proxies", "add", "office", "wan1", "18080", "--username", "u", stdin="a, secret\n")
    shell.say("proxies", "add", "#guest", "wan1", "18082", "--username", "u", "--password", " p ")
    shell.say("proxies", "edit", "office", "--port", "18081")
    shell.say("proxies", "disable", "office")
    shell.say("proxies", "enable", "office")
    rows = shell.say("proxies", "export")
    assert rows == 'office,wan1,18081,u,"a, secret"\n"#guest",wan1,18082,u," p "\n'
    assert shell.json("proxies", "quota")["used"] == 2
    shell.say("proxies", "delete", "office", "#guest")
    assert shell.say("proxies", "import", "-", stdin=rows).startswith("2 proxy services imported")
    assert shell.say("proxies", "export") == rows


def test_status_and_explain_print_reasons(shell: Shell) -> None:
    wan = InterfaceStatus(name="wan1", ip="203.0.113.20", is_up=True, role="wan")
    shell.device.bench.netd.shown = Status(state="running", revision=1, interfaces=(wan,))
    shell.say("rules", "add", "10.0.0.1", "Interface:wan1")
    said = shell.say("status")
    assert "status          running" in said
    assert "Interface:wan1\t1\twan1\t" in said
    assert shell.json("status")["counts"]["rules"] == 1
    steps = shell.say("explain", "10.0.0.1", "example.com").splitlines()
    assert steps[-1] == "it leaves by wan1"
    shell.device.bench.netd.delay_of = lambda _: Delay(delay=5, page=b"ip=203.0.113.20")
    said = shell.say("explain", "10.0.0.1", "example.com", "--probe-url", "http://who.test/")
    assert said.endswith("probe: http://who.test/ saw 203.0.113.20 after 5 ms\n")
    blocked = shell.run("explain", "10.0.0.2", "example.com", "--probe", "--json")
    assert blocked.exit_code == 1
    assert json.loads(blocked.stdout)["reason"] == "its target is REJECT"


def test_the_status_of_a_member_has_all_members(shell: Shell) -> None:
    seen = (
        MemberSeen(
            id=1,
            name="gw1",
            version="1",
            n=7,
            applied=12,
            role="active",
            role_since="2026-11-20T22:58:40Z",
        ),
        MemberSeen(id=2, name="gw2"),
    )
    reading = SiteReading(me=1, head=12, members=seen)
    shell.device.members = [MemberState.of(each, reading, is_beating=True) for each in seen]
    lines = shell.say("status").splitlines()
    assert lines[-2:] == [
        "gw1\tactive\t2026-11-20T22:58:40Z\t1\t12\t0\tyes\tno\tyes",
        "gw2\t\t\t\t\t\tyes\tno\tyes",
    ]


def test_the_device_is_stopped_opened_and_started(shell: Shell) -> None:
    settings = shell.device.bench.settings
    shell.say("stop")
    assert settings.get().stopped
    assert shell.run("open", stdin="n\n").exit_code == 1
    assert not settings.get().opened
    shell.say("open", "--yes")
    assert settings.get().opened
    assert "opened: no rule applies" in shell.say("status")
    shell.say("start")
    assert not settings.get().opened


def test_printed_text_contains_no_control_characters() -> None:
    from egressd.cli.output import _text

    assert _text("a\x1b[2Jb\u202e") == "a\\x1b[2Jb\\u202e"
    assert _text(["é", True]) == "é, yes"


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell_name: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell_name])
    assert "_EGRESSD_COMPLETE" in result.output


def test_command_names_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, Any] = {
        "_EGRESSD_COMPLETE": "bash_complete",
        "COMP_WORDS": "egressd rules ex",
        "COMP_CWORD": "2",
    }
    result = CliRunner(env=environment).invoke(cli, prog_name="egressd")
    assert result.output.split() == ["plain,export"]


def on_a_terminal(shell: Shell, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command whose input and output are a terminal, and return its exit status and output.
    Its question is answered.
    """
    main, other = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from egressd.cli import main; main()", *arguments],
        stdin=other, stdout=other, stderr=other,
        env={**os.environ, "EGRESSD_URL": shell.url, "EGRESSD_TOKEN": shell.token},
    )  # fmt: skip
    os.close(other)
    os.write(main, f"{answer}\n".encode())
    said = b""
    with suppress(OSError):  # EIO: the other side is closed
        while part := os.read(main, 4096):
            said += part
    os.close(main)
    return process.wait(), said.decode()


def test_stop_asks_on_a_terminal(shell: Shell) -> None:
    status, said = on_a_terminal(shell, "n", "stop")
    assert status == 1
    assert "Every client will be blocked" in said
    settings = shell.device.bench.settings
    assert not settings.get().stopped
    status, said = on_a_terminal(shell, "y", "stop")
    assert status == 0, said
    assert settings.get().stopped


def test_stop_does_not_ask_if_the_answer_is_given(shell: Shell) -> None:
    status, said = on_a_terminal(shell, "n", "stop", "--yes")
    assert status == 0, said
    assert "Continue?" not in said


async def test_a_key_of_wireguard_is_made_for_a_node(shell: Shell) -> None:
    one, other = (json.loads(shell.say("nodes", "keygen", "--json"))[0] for _ in range(2))
    private = X25519PrivateKey.from_private_bytes(b64decode(one["private"]))
    assert b64encode(private.public_key().public_bytes_raw()).decode() == one["public"]
    assert one["private"] != other["private"]
    config = {"server": "198.51.100.1", "port": 1, "ip": "10.2.0.2"}
    keys = {"private-key": one["private"], "public-key": other["public"]}
    shell.say("nodes", "add", "w", "wireguard", "-", stdin=json.dumps(config | keys))


def test_an_import_recognises_its_form_and_tells_the_fate_of_each_row(shell: Shell) -> None:
    rows = "203.0.113.7,1080,u,p,one\n203.0.113.8,1080,u,p,two"
    ran = shell.run("nodes", "import", "-", stdin=rows)
    assert "recognised: socks5" in ran.stderr
    assert "2 nodes imported" in ran.stdout
    link = "socks5://u:p@203.0.113.8:1081#two\nsocks5://u:p@203.0.113.9:1081#six"
    ran = shell.run("nodes", "import", "-", "--dry-run", stdin=link)
    assert "recognised: share links" in ran.stderr
    assert ran.stdout.splitlines()[:2] == [
        "line 1: two skipped: there is another one of that name",
        "line 2: six added",
    ]
    ran = shell.run("nodes", "import", "-", "--dry-run", "--replace", stdin=link)
    assert "line 1: two changed: port\n" in ran.stdout
    assert "1 would be removed: one\n" in ran.stdout
    twice = shell.run("nodes", "import", "-", "--dry-run", stdin=rows)
    assert twice.stdout.startswith("line 1: one the same as there is\n")
