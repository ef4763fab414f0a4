"""The sentence of each code, as operators read it and as ``/svc/api/v1`` has it."""

from __future__ import annotations

import pytest

from egressd.model.faults import Fault, Value
from egressd.model.sentences import SENTENCES

# A sentence of /svc/api/v1 does not change: a change of one here changes that API.
PINNED: dict[str, tuple[dict[str, Value], str]] = {
    "other": ({"text": "text"}, "text"),
    "length": ({"least": 1, "most": 64}, "x must have 1 to 64 characters"),
    "too-long": ({"most": 64}, "x must have at most 64 characters"),
    "too-many-bytes": ({"most": 64}, "x must have at most 64 bytes"),
    "control-characters": ({}, "x must not contain control characters"),
    "empty": ({}, "x must not be empty"),
    "comma": ({}, "x must not contain a comma"),
    "outer-white-space": ({}, "x must not begin or end with white space"),
    "whole-number": ({"least": 1, "most": 64}, "x must be a whole number from 1 to 64"),
    "one-of": ({"choices": ("a", "b")}, "x must be one of a, b"),
    "url": (
        {"most": 64},
        "x must be an http or https URL of at most 64 characters, without a user name",
    ),
    "ipv4-address": ({}, "x must be an IPv4 address"),
    "ipv4-or-cidr": ({}, "x must be an IPv4 address or a CIDR without host bits"),
    "ipv4-or-cidrs": (
        {"given": "given"},
        "x must be IPv4 addresses or CIDRs without host bits; 'given' is not",
    ),
    "ipv4-or-host": ({}, "x must be an IPv4 address or a host name"),
    "domain-or-ipv4": ({}, "x must be a domain name or an IPv4 address"),
    "dns-servers": ({"most": 64}, "x must be at most 64 IPv4 addresses"),
    "dns-servers-needed": ({"profile": "profile"}, "x must not be empty when profile is custom"),
    "dns-servers-needed-by-node": (
        {"name": "a"},
        "x must not be empty: a's node_dns_profile is custom",
    ),
    "interface-prefix": ({"prefix": "l2tp_"}, "x must be a bare interface name, without l2tp_"),
    "interface-loopback": (
        {},
        "x must not be lo, by which this device is reached and nothing else",
    ),
    "interface-name": (
        {"most": 64},
        "x must be an interface name of 1 to 64 characters: letters, digits, and after the "
        "first also _ . @ -",
    ),
    "name-reserved": ({}, "x must not be DIRECT or REJECT nor begin with Group_ or Interface:"),
    "name-looks-reserved": (
        {},
        "x must not look like DIRECT or REJECT nor begin like Group_ or Interface:",
    ),
    "name-not-normal": ({}, "x must be in Unicode's normal form NFC"),
    "name-begins-with-mark": ({}, "x must not begin with a combining mark"),
    "name-unseen-character": (
        {"point": "point"},
        "x must not contain U+point, which cannot be seen",
    ),
    "name-looks-taken": (
        {"thing": "node", "name": "a"},
        "x must not look like another's: there is a node a already",
    ),
    "name-taken": (
        {"thing": "node", "name": "a"},
        "x must not be another's: there is a node a already",
    ),
    "name-unsuitable": (
        {"name": "a", "reason": "it is so"},
        "x must suit the node a, which names it: it is so",
    ),
    "names-used-up": (
        {"name": "a", "most": 64, "prefix": "l2tp_"},
        "'a' is one name too many: 64 that begin with l2tp_ have been used on this device",
    ),
    "target-form": (
        {},
        "x must be DIRECT, REJECT, a node's name, Group_<group name> or Interface:<interface name>",
    ),
    "target-missing": (
        {"kind": "node", "name": "a"},
        "x must be DIRECT, REJECT, a node's name, Group_<group name> or Interface:<interface "
        "name>; there is no node 'a'",
    ),
    "whitelist-target": ({}, "x must be DIRECT, a node's name or Group_<group name>"),
    "whitelist-target-missing": (
        {"given": "given"},
        "x must be DIRECT, a node's name or Group_<group name>; 'given' is none",
    ),
    "no-such-id": ({"thing": "node", "id": 7}, "there is no node with the id 7"),
    "no-such-node": ({"name": "a"}, "there is no node a"),
    "no-such-line": ({"type": "type", "name": "a"}, "there is no type line a"),
    "quota-reached": ({"quota": 10}, "all 10 proxy services that are allowed exist already"),
    "rule-exists": ({"ip": "ip"}, "x must not have a rule already: ip has one"),
    "nothing-to-update": (
        {},
        "one of update_target, update_upload and update_download must be true",
    ),
    "both-given": ({"other": "other"}, "x and other must not both be given"),
    "relay-circle": ({"circle": "circle"}, "x must not lead in a circle: circle"),
    "relay-chain": ({"most": 64}, "x must not lead through more than 64 others"),
    "relay-missing": ({"name": "a"}, "x must name a node; there is no node 'a'"),
    "relay-without-udp": (
        {"protocol": "protocol", "name": "a"},
        "x must name a node that carries UDP, which protocol is spoken over; 'a' does not",
    ),
    "server-is-device": ({}, "x must not be this device itself"),
    "node-leads-here": ({"name": "a", "problem": "problem"}, "a: problem"),
    "server-not-public": (
        {"reason": "it is so"},
        "x must be on the internet unless the import takes private ones: it is it is so",
    ),
    "node-unsuitable": (
        {"name": "a", "reason": "it is so"},
        "the node a does not take these settings: it is so",
    ),
    "engine-refuses": (
        {"reason": "it is so"},
        "x must be a configuration that the engine takes: it is so",
    ),
    "node-name": ({}, "x must be a node's name"),
    "config-interface": ({"most": 64}, "x must be an interface name of 1 to 64 characters"),
    "engine-form": ({"reason": "it is so"}, "x must be valid for the engine: it is so"),
    "takes": ({"takes": "takes"}, "x must be takes"),
    "not-given": ({"reason": "it is so"}, "x must not be given: it is so"),
    "object": ({}, "x must be an object"),
    "text": ({"most": 64}, "x must be text of at most 64 characters"),
    "text-without-colon": ({"most": 64}, "x must be text of at most 64 bytes without a colon"),
    "text-list": ({"most": 64}, "x must be a list of at most 64 texts"),
    "word": ({"word": "word"}, "x must be word"),
    "host": ({}, "x must be a host name or an IP address"),
    "ip-address": ({}, "x must be an IP address"),
    "uuid": ({}, "x must be a UUID"),
    "user-id": (
        {"most": 64},
        "x must be a UUID, or a text of at most 64 bytes that servers make one of",
    ),
    "headers": ({}, "x must be an object of HTTP header names and texts"),
    "header-lists": ({}, "x must be an object of HTTP header names and lists of texts"),
    "http-method": ({}, "x must be an HTTP method"),
    "http-path": ({}, "x must be an HTTP path whose % are followed by two hexadecimal digits"),
    "http-paths": ({"most": 64}, "x must be a list of at most 64 HTTP paths"),
    "alpn": ({"most": 64}, "x must be a list of at most 64 names of 1 to 64 bytes"),
    "server-name": ({}, "x must be the server's name (SNI) alone"),
    "reality-key": ({}, "x must be an X25519 public key: 43 base64url characters"),
    "reality-short-id": ({}, "x must be at most 16 hexadecimal digits, an even number of them"),
    "ech-config": ({}, "x must be an ECHConfigList in base64"),
    "grpc-service": (
        {},
        "x must be a service's name: of paths, which begin with /, the engine has but /NAME/Tun",
    ),
    "rate": ({}, "x must be a rate such as 100 or 100 Mbps"),
    "ports": ({}, "x must be ports and ranges such as 443,8000-9000"),
    "hop-interval": (
        {"least": 1, "most": 64},
        "x must be a whole number from 1 to 64, or a range such as 15-30",
    ),
    "differs": ({"other": "other"}, "x must be the same as other when both are given"),
    "given-together": ({"other": "other"}, "x and other must be given together"),
    "needed-by": ({"other": "other"}, "x must be given when other is"),
    "tls-needed": ({"other": "other"}, "x must be true when other is given"),
    "no-tls-beneath": ({}, "x must be false: the engine has no TLS beneath this protocol"),
    "no-tls-to-socks": ({}, "x must be false: the engine does not speak SOCKS over TLS"),
    "tcp-only": ({}, "x must be tcp: the engine has no other transport here"),
    "tcp-with-flow": ({}, "x must be tcp when flow is given"),
    "http-with-tls": ({}, "x must not be http when tls is true; HTTP/2 over TLS is h2"),
    "early-data-with-upgrade": ({}, "x must be 0 with HTTP upgrade"),
    "certificate-name": (
        {},
        "x must be the server's name (SNI), which is all that the engine checks a certificate "
        "against",
    ),
    "ech-with-reality": ({}, "x must be false when reality-opts is given"),
    "ech-needs-config": (
        {},
        "x must be given when ech-opts.enable is true: over QUIC the engine does not look one up",
    ),
    "obfs-mode": ({}, "x must be http or tls"),
    "cipher-key": ({"size": 32}, "x must be a key of 32 bytes in base64 with this cipher"),
    "one-key": ({}, "x must be one key: this cipher has no identity keys"),
    "plugin-mode": ({"modes": "modes", "plugin": "plugin"}, "x must be modes with plugin"),
    "plugin-verifies": ({}, "x must be false: the engine's plugin always verifies"),
    "plugin-one-name": ({}, "x must be plugin-opts.host: the engine's plugin has one name"),
    "control-characters-in-key": ({}, "a key of x must not contain control characters"),
    "json-object": ({}, "x must be a JSON object"),
    "json-syntax": (
        {"reason": "it is so", "line": 1, "column": 2},
        "x must be a JSON object: it is so at line 1 column 2",
    ),
    "json-size": ({"most": 64}, "x must not be over 64 bytes"),
    "json-depth": ({"most": 64}, "x must not be nested over 64 deep"),
    "json-key-twice": ({"key": "key"}, "x must not hold the key 'key' twice"),
    "json-number": ({"number": 100001}, "x must not hold the number 100001"),
    "json-number-size": ({}, "x must not hold a number too large"),
    "too-many-rows-of-text": ({"most": 64}, "x must have at most 64 rows"),
    "too-many-lines": ({"most": 64}, "x must have at most 64 lines"),
    "line-type-fixed": ({"type": "type"}, "x must stay type: it cannot change"),
    "line-name": (
        {"prefix": "l2tp_", "most": 64},
        "x must begin with l2tp_, go on with letters, digits or _ . @ - and have at most 64 "
        "characters",
    ),
    "file-name": ({}, "x must not begin with @/, which the VPN programs take for a file's name"),
    "line-not-normal": ({}, "server, port and secret must be in the form that they are stored in"),
    "port-reserved": (
        {"port": 80, "reason": "it is so"},
        "x must not be one that the system reserves: 80 is for it is so",
    ),
    "port-in-use": ({"user": "user", "port": 80}, "x must be free: user listens on 80"),
    "colon": ({}, "x must not contain a colon, which ends it in HTTP (RFC 7617)"),
    "username-needed": ({}, "x must not be empty when a password is given"),
    "too-many-entries": ({"most": 64}, "x must have at most 64 entries"),
    "entry-scheme": (
        {"entry": "entry", "schemes": ("http://", "quic://")},
        "x: 'entry' must begin with http://, quic:// or no scheme",
    ),
    "entry-port": ({"entry": "entry"}, "x: 'entry' must end with a port from 1 to 65535"),
    "entry-is-address": (
        {"entry": "entry"},
        "x: 'entry' must be a domain name; addresses belong in ips",
    ),
    "entry-domain": (
        {"entry": "entry"},
        "x: 'entry' must be a domain name, alone or as <scheme>://<domain>:<port>",
    ),
    "entry-ipv6": ({"entry": "entry"}, "x: 'entry' must be IPv4: clients' IPv6 is not routed"),
    "entry-network": ({"entry": "entry"}, "x: 'entry' must be an IPv4 address or CIDR"),
    "entry-host-bits": (
        {"entry": "entry", "network": "network"},
        "x: 'entry' must not have host bits: network",
    ),
    "missing": ({"takes": "takes"}, "x is missing: it must be takes"),
    "unknown-field": ({"fields": ("a", "b")}, "x is not a field here; the fields are a, b"),
    "given-twice": ({"name": "a"}, "a must not be given twice"),
    "boolean": ({}, "x must be true or false"),
    "string": (
        {"most": 64},
        "x must be a string of at most 64 characters, none of them a control character",
    ),
    "string-of-length": (
        {"least": 1, "most": 64},
        "x must be a string of 1 to 64 characters, none of them a control character",
    ),
    "id": ({}, "x must be a whole number from 1"),
    "text-of-lines": ({}, "x must be text without control characters"),
    "text-of-rows": ({}, "x must be text of one row a line"),
    "text-of-bytes": ({"most": 64}, "x must be text of at most 64 bytes"),
    "text-of-object": (
        {"most": 64},
        "x must be the text of a JSON object, of at most 64 characters",
    ),
    "url-form": ({"most": 64}, "x must be an http or https URL of at most 64 characters"),
    "protocol-form": (
        {},
        "x must be a protocol's name, such as socks5, ss, vmess, vless or trojan",
    ),
    "interface-form": ({"most": 64}, "x must be an interface's bare name of 1 to 64 characters"),
    "interface-form-or-empty": (
        {"most": 64},
        "x must be an interface's bare name of 1 to 64 characters, or an empty string",
    ),
    "line-name-form": (
        {"most": 64},
        "x must be a name that begins with l2tp_ or pptp_, of at most 64 characters",
    ),
    "target-form-or-empty": (
        {},
        "x must be DIRECT, REJECT, a node's name, Group_<group name> or Interface:<interface "
        "name>, or an empty string",
    ),
    "word-open": ({}, 'x must be the word "open"'),
    "empty-beside": ({"other": "other"}, "x must be empty when other is given"),
    "no-dns-server": ({}, "x must name a DNS server when node_dns_profile is custom"),
    "no-dns-server-of-line": ({}, "x must hold a DNS server when dns_profile is custom"),
    "no-target": ({}, "x must not be empty when update_target is true"),
    "no-update": ({}, "x must be true where no other update flag is: a batch updates something"),
    "content-type": (
        {"media_type": "media_type"},
        "Content-Type must be media_type on a request with a body",
    ),
    "content-encoding": ({}, "Content-Encoding must not be used: the body must come as it is"),
    "body-size": ({"most": 64}, "x must not be larger than 64 bytes"),
    "body-late": ({"seconds": "seconds"}, "x did not arrive within seconds seconds"),
    "body-utf-8": ({}, "x must be JSON in UTF-8"),
    "body-syntax": (
        {"reason": "it is so", "line": 1, "column": 2},
        "x must be JSON: it is so at line 1, column 2",
    ),
    "body-number": ({"number": 100001}, "x must be JSON: 100001 is not a JSON number"),
    "body-depth": ({"most": 64}, "x must not nest deeper than 64 levels"),
    "body-json": ({}, "x must be JSON"),
    "body-misfit": ({"reason": "it is so"}, "x does not fit: it is so"),
    "body-broken-off": ({}, "x did not arrive"),
    "content-type-only": ({"media_type": "media_type"}, "Content-Type must be media_type"),
    "too-many-streams": ({}, "too many event streams are open"),
    "too-many-streams-of-caller": (
        {"most": 64},
        "too many event streams are open: a caller may have 64",
    ),
    "wrong-code": (
        {},
        "the setup code is wrong, or was used already; `egressd console code` shows or makes one",
    ),
    "wrong-password": ({}, "the password is wrong"),
    "too-soon": ({"seconds": "seconds"}, "too many wrong attempts: try again in seconds seconds"),
    "password-form": (
        {"least": 1, "most": 64},
        "x must have 1 to 64 characters, none of them a control",
    ),
    "license-refused": ({"reason": "it is so"}, "the license is not installed: it is so"),
    "trial-calls-used-up": (
        {"number": 100001},
        "all 100001 trial calls of the license are used up",
    ),
    "too-many-rows": (
        {"most": 64, "things": "nodes", "number": 100001},
        "there may be at most 64 nodes, and would be 100001",
    ),
    "no-way-to-try": ({"reason": "it is so"}, "there is no way to try: it is so"),
    "time": ({}, "x must be a time such as 2026-11-20T22:58:40Z"),
    "backup-unfit": (
        {"problem": "problem"},
        "the backup says what this device does not take: problem",
    ),
    "backup-also-unfit": ({"problem": "problem"}, "problem"),
    "backup-over-quota": (
        {"number": 100001, "quota": 10},
        "the backup has 100001 proxy services, and 10 are allowed",
    ),
    "no-backup": ({"reason": "it is so"}, "the file is no backup that can be put back: it is so"),
}


def test_every_code_is_pinned() -> None:
    assert SENTENCES.keys() == PINNED.keys()


@pytest.mark.parametrize("code", PINNED)
def test_a_sentence_stays_as_it_is(code: str) -> None:
    values, sentence = PINNED[code]
    assert str(Fault(("x",), code, values)) == sentence
