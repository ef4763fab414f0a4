"""The sentence of each code, as operators read it and as ``/svc/api/v1`` has it."""

from __future__ import annotations

import pytest

from egressd.model.faults import Fault
from egressd.model.sentences import SENTENCES
from egressd.model.wording import Value, say

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
    "relay-tunnel": (
        {"name": "name", "protocol": "wireguard"},
        "x must not be name: a node of wireguard is no relay, since its server knows one end of a "
        "key",
    ),
    "unmanaged-tunnel": (
        {"protocol": "wireguard"},
        "x must not be a node of wireguard: it serves clients with a rule only, since its server "
        "knows one end of a key",
    ),
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
    "one-peer": ({}, "x must have one peer: a node has one server"),
    "differs-from": ({"other": "other"}, "x must not be the same as other"),
    "base64-text": ({}, "x must be a text in base64"),
    "wireguard-key": ({}, "x must be a key of WireGuard: 32 bytes in base64"),
    "tunnel-address": ({}, "x must be an IPv4 address, such as 10.2.0.2"),
    "tunnel-networks": (
        {"most": 64},
        "x must be a list of at most 64 networks, an IPv4 one among them",
    ),
    "reserved-bytes": ({}, "x must be three bytes, such as [1, 2, 3] or AQID"),
    "ssh-private-key": (
        {},
        "x must be a private key in PEM, from its BEGIN to its END line",
    ),
    "ssh-host-keys": ({}, "x must be a list of keys such as ssh-ed25519 AAAA…"),
    "ssh-algorithms": ({"choices": ("a", "b")}, "x must be a list of some of a, b"),
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
        {"entry": "entry", "other": "ips"},
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
    "clients-out-again": ({"n": 2, "targets": "targets"}, "2 clients of targets get out again"),
    "egress-fails": ({"name": "name", "reason": "reason"}, "name does not work: reason"),
    "egress-works": ({"name": "name"}, "name works again"),
    "some-fail": ({"names": ("a", "b"), "n": 2, "reason": "reason"}, "a, b fail: reason"),
    "some-answer": ({"names": ("a", "b"), "n": 2}, "a, b answer again"),
    "more-changed": ({"n": 2}, "2 more have changed"),
    "over": ({"problem": "problem"}, "over: problem"),
    "exit-changed": (
        {"name": "a", "ip": "192.0.2.2", "before": "192.0.2.1"},
        "a leaves by 192.0.2.2, and left by 192.0.2.1 before",
    ),
    "exit-shared": (
        {"n": 2, "ip": "192.0.2.1", "names": ("a", "b")},
        "2 leave by the same address 192.0.2.1: a, b",
    ),
    "address-here": ({}, "an address of this machine's"),
    "address-private": ({}, "a private address"),
    "address-link-local": ({}, "a link-local address"),
    "address-multicast": ({}, "a multicast address"),
    "address-reserved": ({}, "a reserved address"),
    "address-inner-name": ({}, "a name of a private network"),
    "address-in-lan": ({}, "in a LAN"),
    "another-program": ({}, "another program"),
    "the-proxy-service": ({"name": "name"}, "the proxy service name"),
    "either": ({"forms": ("a", "b")}, "a or b"),
    "list": ({"each": "each"}, "a list, each each"),
    "list-of-at-most": ({"most": 2, "each": "each"}, "a list of at most 2, each each"),
    "null": ({}, "null"),
    "object-with-fields": ({"fields": ("a", "b")}, "a JSON object with the fields a, b"),
    "empty-object": ({}, "a JSON object, {}"),
    "no-such-session": ({}, "there is no such session"),
    "interface-name-with-prefix": (
        {"prefix": "prefix"},
        "x must be an interface name that begins with prefix",
    ),
    "auto-or-interface": ({}, "x must be auto or an interface name"),
    "pptp-port-only": ({"port": 2}, "x must be 2 for pptp: its client dials no other"),
    "one-line": ({"most": 2}, "x must be one line of at most 2 characters"),
    "begins-as-file": ({}, "x must not begin with @/"),
    "of-thing": ({"thing": "thing", "id": 2, "problem": "problem"}, "thing 2: problem"),
    "of-things": ({"things": "things", "problem": "problem"}, "things: problem"),
    "of-whitelist": ({"problem": "problem"}, "whitelist: problem"),
    "of-settings": ({"problem": "problem"}, "settings: problem"),
    "not-unique": ({"value": "value"}, "x must not be another's: value"),
    "from-1": ({}, "x must be 1 or more"),
    "revision-negative": ({"number": 2}, "meta: revision must be 0 or more, and is 2"),
    "counter-out-of-range": (
        {"name": "name", "most": 2, "number": 2},
        "counters: name must be from 0 to 2, and is 2",
    ),
    "number-of-no-target": ({"name": "name"}, "numbers: 'name' must be a group or an interface"),
    "number-too-low": (
        {"name": "name", "number": 2},
        "numbers: 'name' must have 1 or more, and has 2",
    ),
    "number-not-unique": (
        {"name": "name", "other": "other"},
        "numbers: 'name' must not have the number of 'other'",
    ),
    "several": ({"parts": ("a", "b")}, "a; b"),
    "and-others": ({"names": ("a", "b"), "n": 2}, "a, b and 2 others"),
    "no-interface": ({"name": "name"}, "there is no interface name"),
    "interface-down": ({"name": "name"}, "the interface name is down"),
    "interface-without-address": ({"name": "name"}, "the interface name has no address"),
    "interface-without-gateway": ({"name": "name"}, "the interface name has no gateway"),
    "default-route-by-line": (
        {"name": "name"},
        "the device's default route leads by the line name",
    ),
    "default-route-down": (
        {"name": "name"},
        "the interface name of the device's default route is down",
    ),
    "default-route-by-no-wan": (
        {"name": "name"},
        "the device's default route leads by name, which is no WAN",
    ),
    "no-default-route": ({}, "the device has no default route"),
    "policy-rules-before": (
        {},
        "another program's policy rules come before egressd's and send clients elsewhere (ip "
        "rule show)",
    ),
    "gateway-silent": (
        {"address": "address", "name": "name"},
        "the gateway address of name does not answer",
    ),
    "no-lan-found": (
        {},
        "no LAN was found, because no interface has a private address; no client is served: "
        "set [lan] interfaces in the configuration",
    ),
    "no-wan-found": (
        {},
        "no WAN was found, since no interface has a default route: set [wan] interfaces in "
        "the configuration",
    ),
    "lan-missing": (
        {"name": "name"},
        "the configuration's LAN name is not there, or has no address: what comes in by "
        "interfaces that may be it under another name is not forwarded",
    ),
    "source-missing": (
        {"name": "name", "address": "address"},
        "name does not have the address address that [wan] sources names: new connections of "
        "clients leave by name with its own address",
    ),
    "networks-overlap": (
        {"name": "name", "network": "network", "lan": "lan"},
        "name has the network network, which overlaps that of lan: what is for the one goes "
        "to the other, so clients may be blocked; give one of them another network",
    ),
    "multicast-dropped": (
        {"lans": ("lan0", "lan1")},
        "another program routes multicast to lan0, lan1, and it is dropped: to let it in, set"
        " [lan] multicast = true in the configuration",
    ),
    "router-ignored": (
        {"router": "router", "name": "name"},
        "the IPv6 router router of name is not listened to, since that is LAN and WAN at once"
        " and a client could pose as it: if it is yours, set [wan] gateways6 = { name = "
        '"router" } in the configuration',
    ),
    "router-poses": (
        {"router": "router", "name": "name"},
        "router poses as an IPv6 router behind name: this machine does not listen to it, but "
        "what clients send by it goes past their rules",
    ),
    "route-not-added": ({"route": "route", "reason": "reason"}, "could not add route: reason"),
    "rule-not-added": ({"rule": "rule", "reason": "reason"}, "could not add rule rule: reason"),
    "route-not-removed": ({"what": "what", "reason": "reason"}, "could not remove what: reason"),
    "no-such-interface": ({}, "there is no such interface"),
    "parameter-not-set": (
        {"name": "name", "value": "value", "reason": "reason"},
        "could not set name to value: reason",
    ),
    "policy-rules-ahead": (
        {"most": 2, "command": "command", "priorities": ("1", "2")},
        "policy rules of other programs come before egressd's, and clients may be blocked: "
        "give them a priority above 2 (command; priorities 1, 2)",
    ),
    "firewall-drops": (
        {"lans": ("lan0", "lan1"), "program": "program", "table": "table", "chains": ("a", "b")},
        "another program's firewall drops what its rules do not let through, and none of them"
        " names lan0, lan1: clients may be blocked (program, table table, a, b)",
    ),
    "marks-in-the-way": (
        {"table": "table", "chains": ("a", "b")},
        "another program marks connections, or packets behind egressd, which goes by marks of"
        " its own: clients may be blocked (nftables, table table, a, b)",
    ),
    "slower-by-rules": (
        {"name": "name", "commands": ("a", "b")},
        "traffic by name takes more of the processor, since another program's rules there are"
        " to see every packet (list them: a; b)",
    ),
    "upload-limits-passed": (
        {"name": "name"},
        "another program's filters may take what comes in by name past clients' upload limits"
        " (list them: tc filter show dev name ingress)",
    ),
    "filters-passed": (
        {"name": "name"},
        "another program's filters for what goes out by name do not apply to clients with a "
        "download limit (list them: tc filter show dev name egress)",
    ),
    "flowtable-in-the-way": (
        {"flowtable": "flowtable"},
        "another program's flowtable flowtable takes connections past egressd's rules: a "
        "client that moves may go on by its former way for some seconds (list it: nft list "
        "flowtable flowtable)",
    ),
    "udp-ports-in-use": (
        {"ports": ("53", "443"), "reason": "reason"},
        "UDP through nodes to outside ports on which this machine has servers of its own may "
        "get no answers (53, 443), since the kernel does not let the engine answer from "
        "another port: reason",
    ),
    "library-replaced": (
        {},
        "the nftables library was upgraded, and netd goes on with the version before it: to "
        "change over without cutting anything, run systemctl reload egressd-netd",
    ),
    "kernel-old": (
        {"release": "release"},
        "Linux release is older than 6.1, the oldest tested version",
    ),
    "kernel-old-cost": ({}, "functions may be missing"),
    "kernel-old-cure": (
        {},
        "apt install linux-image-amd64 (arm64: linux-image-arm64), and boot it",
    ),
    "no-btf": ({}, "the kernel has no BTF (/sys/kernel/btf/vmlinux), or is older than 6.0"),
    "no-btf-cost": ({}, "all packets take the slow path: less throughput for known flows"),
    "no-btf-cure": ({}, "a kernel with CONFIG_DEBUG_INFO_BTF=y, such as Debian's"),
    "modules-unknown": ({"release": "release"}, "/lib/modules/release has no list of modules"),
    "modules-unknown-cost": (
        {},
        "it is not known what the kernel can do; netd reports it when it starts",
    ),
    "modules-unknown-cure": ({}, "none is needed if the service runs without problems"),
    "modules-missing": ({"names": "names"}, "the kernel has no names"),
    "modules-cure": (
        {},
        "a kernel with these modules, such as Debian's linux-image-amd64 or -arm64",
    ),
    "modules-cost-rules": ({}, "netd cannot write its rules, and every client stays blocked"),
    "modules-cost-engine": (
        {},
        "the engine cannot receive traffic: clients of nodes, groups and resolvers are blocked",
    ),
    "modules-cost-limits": ({}, "speed limits are not enforced"),
    "modules-cost-lines": ({}, "VPN lines cannot be dialled"),
    "modules-cost-l2tp": ({}, "no L2TP lines"),
    "modules-cost-pptp": ({}, "no PPTP lines with encryption"),
    "modules-cost-ipsec": ({}, "no L2TP lines with IPsec"),
    "no-lan-here": ({}, "no interface is a LAN"),
    "no-lan-here-cost": ({}, "there is no client"),
    "no-lan-here-cure": ({}, "give the LAN's interface a private address, or set [lan] interfaces"),
    "no-wan-here": ({}, "no interface has a default route"),
    "no-wan-here-cost": ({}, "no traffic leaves, except by lines"),
    "no-wan-here-cure": ({}, "configure the uplink, or set [wan] interfaces and [wan] gateways"),
    "one-arm": ({"names": ("eth0",)}, "LAN and WAN share an interface: eth0 (one-arm use)"),
    "one-arm-cost": (
        {},
        "once egressd runs, nothing outside the LAN's network can connect to this machine by it "
        "over IPv4: SSH from another network is cut",
    ),
    "one-arm-cure": (
        {},
        "log in from the LAN or over IPv6, and have a console of the machine at hand",
    ),
    "interface-named": (
        {"name": "name"},
        "the configuration names name, which this machine does not have now",
    ),
    "interface-named-cost": ({}, "its clients are blocked until it is there"),
    "interface-named-cure": ({}, "correct [lan] or [wan] interfaces, or plug it in"),
    "port-taken": (
        {"port": "port", "purpose": "purpose"},
        "another program listens at TCP port port, which is for purpose",
    ),
    "port-taken-cost": ({}, "the api does not start"),
    "port-taken-cure": (
        {"port": "port"},
        "stop it (ss -ltnp 'sport = :port'), or change [api] in the configuration",
    ),
    "no-resolver": ({}, "/etc/resolv.conf names no server that is not on this machine"),
    "no-resolver-cost": ({}, "names are asked at [dns] domestic instead"),
    "no-resolver-cure": ({}, "set [dns] device to resolvers that clients can reach"),
    "no-dhcp": ({}, "no DHCP server runs here (UDP port 67)"),
    "no-dhcp-cost": ({}, "clients use this machine only if they have it as their gateway"),
    "no-dhcp-cure": (
        {},
        "docs/deployment.md has files for dnsmasq; or set the gateway on your DHCP server",
    ),
    "little-memory": ({"mib": "mib"}, "the machine has mib MiB of memory"),
    "little-memory-cost": (
        {},
        "large configurations and imports may need more; 1 GB is recommended",
    ),
    "little-memory-cure": (
        {},
        "[engine] workers = 1 saves memory with more than 16 targets in use",
    ),
    "forwards-already": ({}, "this machine forwards packets now"),
    "forwards-already-cost": ({}, "once egressd runs, clients without a rule are blocked"),
    "forwards-already-cure": (
        {},
        "read docs/deployment.md, Before the first start; make rules at once",
    ),
    "clock-wrong": ({}, "the clock shows a year before 2025"),
    "clock-wrong-cost": ({}, "TLS to nodes fails, and the console's certificate is not valid yet"),
    "clock-wrong-cure": ({}, "apt install systemd-timesyncd, or set the clock (date)"),
    "little-disk": ({"mib": "mib", "folder": "folder"}, "mib MiB are free for folder"),
    "little-disk-cost": (
        {},
        "changes are refused once it is full; what is in force stays in force",
    ),
    "little-disk-cure": ({}, "free at least 200 MiB"),
    "netd-silent": (
        {"reason": "reason"},
        "netd does not answer, so kernel and system are not checked: reason",
    ),
    "netd-silent-cost": ({}, "changes are refused; what netd put in force last stays in force"),
    "netd-silent-cure": ({}, "journalctl -u egressd-netd shows the reason"),
    "table-nearly-full": (
        {"n": 2, "limit": 2},
        "2 connections are tracked and 2 is the limit: new ones are about to be dropped "
        "(net.netfilter.nf_conntrack_max)",
    ),
    "table-full": (
        {"limit": 2},
        "the connection table is full, and new connections are dropped: raise "
        "net.netfilter.nf_conntrack_max, which is 2",
    ),
    "files-used-up": (
        {"limit": 2},
        "all of the 2 files that an engine worker may have open are in use: no new connection"
        " gets through it",
    ),
    "bound-of-source": ({"source": "source", "bound": "bound"}, "source: bound"),
    "bound-connections": (
        {"n": 2},
        "the bound of 2 connections through nodes is reached: further ones are refused",
    ),
    "bound-sessions": (
        {"n": 2},
        "the bound of 2 UDP sessions through nodes is reached: further ones are refused",
    ),
    "bound-network-connections": (
        {"n": 2},
        "the bound of 2 connections through nodes for all addresses of a network without a "
        "rule of their own is reached: further ones are refused",
    ),
    "bound-network-sessions": (
        {"n": 2},
        "the bound of 2 UDP sessions through nodes for all addresses of a network without a "
        "rule of their own is reached: further ones are refused",
    ),
    "bound-resolver": (
        {"n": 2},
        "the bound of 2 connections to resolvers is reached: further ones are refused",
    ),
    "bound-questions": (
        {"n": 2},
        "more than 2 names a second are asked for: the rest gets no answer",
    ),
    "bound-strangers": (
        {"service": "service"},
        "connections to the proxy service service do not sign in: further ones are refused",
    ),
    "bound-guesses": (
        {},
        "too many wrong passwords for proxy services: it has to wait for a minute",
    ),
    "bound-api": (
        {"n": 2},
        "more than 2 new connections a second to the API: the rest has to wait",
    ),
    "bound-calls": (
        {"n": 2},
        "the bound of 2 connections to proxy services is reached: further ones are refused",
    ),
    "bound-service": (
        {"service": "service"},
        "many callers of the proxy service service do not sign in: from outside, who has not "
        "signed in within ten minutes is refused",
    ),
    "bound-outside": (
        {"n": 2},
        "the bound of 2 connections to proxy services from outside is reached: further ones "
        "are refused",
    ),
    "bound-of-address": (
        {"address": "address", "n": 2},
        "address has 2 connections to the device, as many as an address may have",
    ),
    "bound-of-network": (
        {"network": "network", "n": 2},
        "network has 2 connections to the device, as many as strangers may have",
    ),
    "bound-of-strangers": (
        {"n": 2},
        "strangers have 2 connections to the device, as many as they may have",
    ),
    "bound-of-device": ({"n": 2}, "there are 2 connections to the device, as many as there may be"),
    "password-guessed": (
        {"network": "network"},
        "the console's password is being guessed from network",
    ),
    "update-failed": (
        {"wanted": "wanted", "in_force": "in_force", "reason": "reason"},
        "the update to version wanted failed, and version in_force is in force: reason",
    ),
    "timed-backup-failed": (
        {"folder": "folder", "reason": "reason"},
        "timed backups to folder fail: reason",
    ),
    "timed-backup-late": (
        {"folder": "folder"},
        "the timed backup to folder is late: neither egressd-timed-backup.timer nor `egressd serve`"
        " makes it",
    ),
    "site-away": (
        {"reason": "reason"},
        "the site's database cannot be used, so that no change can be made: reason",
    ),
    "site-no-lease": (
        {},
        "this member of the site has no lease: it lets no client through until it is in step with "
        "the site",
    ),
    "site-replica-behind": (
        {"reason": "reason"},
        "the replica of the site's configuration on this box is out of date: reason",
    ),
    "pair-daemon-missing": (
        {"name": "name"},
        "name is not installed (apt install name), without which this box is no whole part of its "
        "pair",
    ),
    "pair-unfit": (
        {"fault": "fault"},
        "[pair] does not fit this box, which is not active therefore: fault",
    ),
    "pair-unaddressed": (
        {"name": "name"},
        "name has no address of this box's own: in the pair it counts as a link that is down",
    ),
    "pair-number-taken": (
        {"address": "address", "name": "name", "number": "number"},
        "address on name sends VRRP adverts with this pair's number, number: give one of the two "
        "another router_id",
    ),
    "pair-address-taken": (
        {"address": "address", "name": "name", "shared": "shared"},
        "address on name announces the pair's shared address shared by VRRP as its own: clients "
        "whose packets reach that router are not served by the pair",
    ),
    "pair-sync-silent": (
        {"name": "name", "address": "address", "port": "port"},
        "the other box of the pair, address, does not answer on name (TCP port port): until it "
        "does, a takeover can end connections that begin now, and let go on others that are closed "
        "now",
    ),
    "pair-daemon-ends": (
        {"name": "name", "how": "how"},
        "name has ended, and is started again: how",
    ),
    "site-untold": (
        {"site": "site", "reason": "reason"},
        "the site site does not know yet that this box has left it, and counts it as a silent "
        "member: reason",
    ),
    "site-without-lease": (
        {"reason": "reason"},
        "this box has no lease in its site, so that no client gets out and no change can be made:"
        " reason",
    ),
    "site-peer-blind": (
        {},
        "neither box of the pair reaches the site's database: clients are let through by the"
        " configuration that there is, and no change can be made",
    ),
    "site-peer-silent": (
        {},
        "neither the site's database nor the other box of the pair can be reached: clients are let"
        " through by this box's last configuration, and no change can be made",
    ),
    "site-outdated": (
        {},
        "the site's database has the schema of a newer egressd: upgrade this box, which follows"
        " the site until then and makes no change",
    ),
    "site-member-away": (
        {"name": "name"},
        "the member name of the site is shut out: no client gets out by it",
    ),
    "site-member-shut": (
        {"name": "name"},
        "the member name of the site did not answer, and lets no client through until it has this"
        " change",
    ),
    "site-blocked-there": (
        {"name": "name", "targets": ("a", "b")},
        "on the member name of the site a, b cannot be in force",
    ),
    "asked-by": ({"name": "name"}, "by name"),
    "asked-directly": ({}, "directly"),
    "asked-locally": ({}, "locally"),
    "asked-by-node": ({}, "through the node"),
    "resolver-of-peer": ({}, "what the line's peer hands out"),
    "nothing-answers": (
        {"way": "way", "servers": ("192.0.2.1", "192.0.2.2")},
        "nothing that is asked way answers (192.0.2.1, 192.0.2.2)",
    ),
    "no-resolver-answers": (
        {"way": "way", "servers": ("192.0.2.1", "192.0.2.2")},
        "no resolver answers way (192.0.2.1, 192.0.2.2)",
    ),
    "resolver-silent": (
        {"server": "server", "way": "way", "other": "other"},
        "resolver server does not answer way: other is asked in its place",
    ),
    "resolver-outside": (
        {"server": "server"},
        "local resolver server is neither on this machine nor in a LAN or local network: it "
        "is not asked",
    ),
    "worker-fails": ({"n": 2, "reason": "reason"}, "engine worker 2: reason"),
    "worker-does-not-start": ({"reason": "reason"}, "it does not start: reason"),
    "being-started": ({}, "it is being started"),
    "start-too-slow": ({"seconds": 2}, "it did not start within 2 s"),
    "engine-crashes": ({"reason": "reason"}, "the engine crashes on it: reason"),
    "quarantined": (
        {"reason": "reason", "minutes": 2},
        "the engine crashes on its configuration (reason); it is started again when that "
        "changes, and tried every 2 minutes",
    ),
    "engine-crashed": ({"reason": "reason"}, "the engine crashed while measuring: reason"),
    "engine-deaf": ({"reason": "reason"}, "the engine does not listen: reason"),
    "engine-refuses-user": ({}, "the engine does not take its own user"),
    "engine-field-unknown": ({}, "the engine does not know the field x"),
    "silent": ({}, "it does not answer"),
    "cannot-connect": ({}, "it cannot connect"),
    "not-allowed": ({}, "it does not allow the connection"),
    "network-unreachable": ({}, "the network is unreachable"),
    "host-unreachable": ({}, "the host is unreachable"),
    "connection-refused": ({}, "connection refused"),
    "timed-out": ({}, "timed out"),
    "timed-out-at": ({"timeout": 2, "stage": "stage"}, "timed out after 2 ms, stage"),
    "stage-connecting": ({}, "connecting through the node"),
    "stage-tls": ({}, "in the TLS handshake with the site"),
    "stage-waiting": ({}, "waiting for an answer through the node"),
    "no-tcp": ({}, "it does not carry TCP"),
    "no-such-address": ({}, "it does not take such an address"),
    "socks-reply": ({"number": 2}, "SOCKS reply 2"),
    "node-name-unknown": ({}, "the node's name does not exist"),
    "node-name-without-address": (
        {},
        "the node's name has no address of the asked kind (ip-version)",
    ),
    "node-name-unresolved": ({"reason": "reason"}, "the node's name was not resolved: reason"),
    "site-unreached": ({"reply": "reply"}, "the node does not reach the site: reply"),
    "site-no-http": ({"reason": "reason"}, "the site's answer is not HTTP: reason"),
    "exit-page-long": ({"most": 4095}, "the page has more than 4095 bytes"),
    "exit-page-form": (
        {},
        "the page is neither an address nor lines of which one is ip=ADDRESS",
    ),
    "exit-page-address": ({}, "the page's address is none that a site can have seen"),
    "wrong-login": ({}, "wrong user name or password"),
    "wrong-ssh-login": ({}, "wrong user name, password or private key"),
    "ssh-host-key-other": ({}, "the server's key is none of host-key"),
    "node-password-wrong": ({}, "wrong password"),
    "node-no-socks": ({}, "the node does not speak SOCKS5"),
    "node-http-status": ({"status": "status"}, "the node answered with HTTP status"),
    "tls-failure": ({"reason": "reason"}, "TLS failure: reason"),
    "node-closed": ({}, "the node closed the connection"),
    "node-closed-without-answer": (
        {},
        "the node closed the connection without an answer: a wrong password or key, or it "
        "does not reach the site",
    ),
    "node-unreachable": ({}, "the node is unreachable"),
    "node-egress-blocked": ({}, "the node's egress is blocked"),
    "node-silent": ({}, "the node does not answer"),
    "node-interface-unknown": ({}, "the interface that it is reached through is unknown"),
    "early-data-lost": (
        {},
        "ws-opts.max-early-data has no effect, as the engine of this Python loses early data "
        "with VMess",
    ),
    "nodes-lose": ({"n": 2, "loss": "loss"}, "2 nodes: loss"),
    "relay-gone": (
        {"name": "name", "other": "other"},
        "there is no node name, which other dials through",
    ),
    "relays-in-circle": ({"name": "name"}, "the relays lead in a circle: name comes twice"),
    "too-many-relays": ({"most": 2}, "it would be dialled through more than 2 others"),
    "hop-unfit": ({"name": "name", "reason": "reason"}, "name cannot be dialled: reason"),
    "hop-tunnel": (
        {"name": "name", "protocol": "wireguard"},
        "name is no relay: a server of wireguard knows one end of a key",
    ),
    "hop-without-udp": (
        {"name": "name", "protocol": "protocol", "relay": "relay"},
        "name is spoken over UDP (protocol), and relay, which it dials through, carries no UDP",
    ),
    "clients-blocked": (
        {"n": 2, "targets": "targets", "reason": "reason"},
        "2 clients of targets are blocked: reason",
    ),
    "clients-nameless": (
        {"n": 2, "targets": "targets", "reason": "reason"},
        "2 clients of targets cannot resolve names: reason",
    ),
    "unruled-blocked": ({"reason": "reason"}, "clients without a rule are blocked: reason"),
    "whitelist-blocked": ({"reason": "reason"}, "the whitelist's destinations are blocked: reason"),
    "wan-fails": ({"name": "name", "reason": "reason"}, "the WAN name does not work: reason"),
    "many-reasons": ({"n": 2}, "there are 2 reasons"),
    "targets-nowhere": (
        {},
        "they lead nowhere (their target is gone, disabled, or cannot be dialled)",
    ),
    "no-lan": ({}, "there is no LAN"),
    "address-outside": (
        {"address": "address", "networks": ("10.0.0.0/24",)},
        "address is in none of the LANs' networks (10.0.0.0/24)",
    ),
    "device-stopped": ({}, "an operator has stopped the device"),
    "no-node-out": ({}, "none of its nodes has a way out"),
    "node-fails": ({"reason": "reason"}, "its node fails: reason"),
    "nodes-fail": ({"reason": "reason"}, "all of its nodes fail: reason"),
    "no-member-works": ({"reason": "reason"}, "none of its members works: reason"),
    "member-silent": ({"target": "target"}, "target: the check of its group gets no answer"),
    "line-offline": ({"name": "name", "reason": "reason"}, "the line name is offline: reason"),
    "line-disabled": ({"name": "name"}, "the line name is disabled"),
    "gone": ({"kind": "kind", "name": "name"}, "there is no kind name"),
    "service-not-running": (
        {"name": "name", "reason": "reason"},
        "the proxy service name does not run: reason",
    ),
    "target-rejects": ({}, "its target is REJECT"),
    "target-blocks": ({}, "the target blocks"),
    "udp-refused": (
        {},
        "its node does not carry UDP: it is refused at once, so that clients take TCP",
    ),
    "waiting": ({}, "waiting"),
    "line-being-dialled": ({"server": "server"}, "server is being dialled"),
    "own-line-disabled": ({}, "the line is disabled"),
    "dialled-by-active-box": ({}, "the active box of the pair dials this line"),
    "line-untold": ({}, "the data plane has not told of it yet"),
    "login-refused": ({}, "the server refused the user name or password"),
    "login-refused-saying": (
        {"said": "said"},
        "the server refused the user name or password: said",
    ),
    "login-unanswered": ({}, "the server does not answer the login"),
    "no-login-kind": ({}, "the server takes no kind of password that this line may use"),
    "no-ms-chap": (
        {},
        "the server does not ask for MS-CHAPv2, without which PPTP is not encrypted",
    ),
    "eap-only": ({}, "the server insists on EAP, by which lines do not log in"),
    "account-in-use": ({}, "the account may still be in use at the server"),
    "account-in-use-saying": (
        {"said": "said"},
        "the account may still be in use at the server: said",
    ),
    "server-unproved": (
        {},
        "the server does not know the password itself, and may be another than it should be",
    ),
    "no-mppe": ({}, "the server does not encrypt PPTP with 128 bits (MPPE)"),
    "mppe-in-l2tp": ({}, "the server wants MPPE inside L2TP, which egressd does not do"),
    "l2tp-secret-wanted": (
        {},
        "the server wants a secret of L2TP's own, beside IPsec's, which lines do not have",
    ),
    "looped-back": ({}, "what is sent to the server comes back unchanged"),
    "no-address-given": ({}, "the server gave no IP address"),
    "one-address-given": (
        {"address": "address"},
        "the server gives both ends of the line one address, address",
    ),
    "given-address-refused": (
        {"address": "address", "whose": "whose"},
        "the server hands out address, whose",
    ),
    "whose-none": ({}, "which is nobody's address"),
    "whose-lan": ({"name": "name"}, "which is in the LAN name"),
    "whose-interface": ({"name": "name"}, "which is an address of name"),
    "whose-gateway": ({"name": "name"}, "which is the gateway of name"),
    "whose-server": ({}, "which is the address of a VPN server"),
    "whose-resolver": ({}, "which is the address of a resolver"),
    "no-gre": (
        {},
        "the PPTP server takes the call by TCP, but no GRE comes from it: something on the way "
        "drops IP protocol 47",
    ),
    "no-ppp": ({}, "the L2TP server takes the call, but no PPP comes from it"),
    "l2tp-call-unanswered": ({}, "the L2TP server does not answer the call"),
    "pptp-call-refused": ({}, "the PPTP server takes no call of this line"),
    "pptp-call-refused-saying": (
        {"said": "said"},
        "the PPTP server takes no call of this line: said",
    ),
    "pptp-call-ended": ({}, "the PPTP server ended the call"),
    "closed-by-operator": ({}, "the server closed the connection for administrative reasons"),
    "no-room-now": ({}, "the server has no room for the call at the moment"),
    "no-room": ({}, "the server has no room for the call"),
    "call-too-slow": ({}, "the call was not set up in the time that the server gives"),
    "tunnel-exists": ({}, "the server has a tunnel of this line already"),
    "tunnel-not-allowed": ({}, "the server does not let this line have a tunnel"),
    "other-l2tp-version": ({}, "the server speaks another version of L2TP"),
    "server-shuts-down": ({}, "the server is being shut down"),
    "server-stopped-answering": ({}, "the server stopped answering"),
    "server-ended-line": ({}, "the server ended the line"),
    "server-ended-line-saying": ({"said": "said"}, "the server ended the line: said"),
    "server-closed": ({}, "the server closed the connection"),
    "server-closed-saying": ({"said": "said"}, "the server closed the connection: said"),
    "line-too-slow": ({"server": "server"}, "server took too long to set the line up"),
    "no-pptp-server": ({"server": "server"}, "no PPTP server answers at server"),
    "no-pptp-server-saying": (
        {"server": "server", "said": "said"},
        "no PPTP server answers at server: said",
    ),
    "no-l2tp-server": ({"server": "server", "port": 2}, "no L2TP server answers at server port 2"),
    "no-l2tp-by-ipsec": (
        {"server": "server", "port": 2},
        "no L2TP server answers at server port 2 through IPsec",
    ),
    "no-l2tp-by-esp": (
        {"server": "server", "port": 2},
        "no L2TP server answers at server port 2 through IPsec: something on the way may drop "
        "ESP (IP protocol 50), and UDP is tried in its place",
    ),
    "no-l2tp-by-either": (
        {"server": "server", "port": 2},
        "no L2TP server answers at server port 2, neither by ESP nor by ESP in UDP",
    ),
    "no-ipsec-server": ({"server": "server"}, "no IPsec server answers at server"),
    "ipsec-too-slow": ({"server": "server"}, "IPsec with server took too long"),
    "secret-refused": ({}, "the server refused the IPsec secret"),
    "secret-unanswered": (
        {},
        "the server does not answer once the IPsec secret is used: it is wrong, or something "
        "on the way drops UDP port 4500",
    ),
    "no-encryption-taken": ({}, "the server accepts none of the IPsec encryptions offered"),
    "encryption-not-offered": (
        {},
        "the server answers with an IPsec encryption that was not offered",
    ),
    "ipsec-not-allowed": ({}, "the server does not let this address use L2TP over IPsec"),
    "ipsec-refused": ({"notify": "notify"}, "the server refused IPsec: notify"),
    "server-ended-ipsec": ({}, "the server ended the IPsec association"),
    "ipsec-ended": ({}, "the IPsec association ended"),
    "ike-port-in-use": (
        {"port": 2},
        "another program has UDP port 2, which IPsec needs; Debian's own strongSwan is stopped "
        "by: systemctl disable --now strongswan strongswan-starter",
    ),
    "ike-fails": ({"reason": "reason"}, "the IKE daemon failed: reason"),
    "ike-does-not-start": ({"said": "said"}, "the IKE daemon does not start: said"),
    "ike-ended": ({}, "the IKE daemon ended"),
    "ike-hung-up": ({}, "the IKE daemon hung up or does not answer"),
    "ike-was-ended": ({}, "the IKE daemon was ended"),
    "charon-gone": ({}, "charon has gone"),
    "charon-silent": ({}, "charon does not answer"),
    "charon-lacks-command": ({"command": "command"}, "charon knows no command"),
    "kernel-lacks-ppp": ({"said": "said"}, "the kernel cannot do PPP: said"),
    "kernel-lacks-mppe": ({}, "the kernel cannot encrypt PPTP: it has no module ppp_mppe"),
    "kernel-lacks-ipsec": ({"said": "said"}, "the kernel cannot do IPsec (module esp4): said"),
    "module-missing": (
        {"what": "what", "module": "module"},
        "the running kernel cannot do what: it has no module module; Debian's "
        "linux-image-amd64 has it",
    ),
    "programs-missing": ({"packages": ("a", "b")}, "programs are missing: apt install a b"),
    "server-name-unresolved": ({"host": "host"}, "the server's name host cannot be resolved"),
    "no-route-to-server": ({"server": "server"}, "there is no route to reach server by"),
    "no-address-for-server": (
        {"name": "name", "server": "server"},
        "there is no address on name to reach server by",
    ),
    "packets-astray": (
        {"server": "server", "name": "name", "reason": "reason"},
        "packets do not reach server by name: reason",
    ),
    "no-route": ({}, "there is no route"),
    "leave-by-other": ({"name": "name"}, "they would leave by name"),
    "same-address": ({"name": "name", "address": "address"}, "name has the same address, address"),
    "carrier-readdressed": (
        {"name": "name", "address": "address"},
        "the address of name is now address",
    ),
    "carrier-changed": ({"server": "server", "name": "name"}, "the way to server is now name"),
    "secret-lines-full": ({"most": 2}, "no more than 2 lines can have a secret"),
    "clear-lines-full": ({"most": 2}, "no more than 2 L2TP lines can be without a secret"),
    "line-not-started": ({"reason": "reason"}, "it could not be started: reason"),
    "no-own-mounts": ({"said": "said"}, "its daemons may not have mounts of their own: said"),
    "daemon-ended": ({}, "its daemon ended"),
    "daemon-ended-saying": ({"said": "said"}, "its daemon ended: said"),
    "with-end": ({"reason": "reason", "how": "how"}, "reason (how)"),
    "process-ended": ({}, "it ended"),
    "process-ended-with": ({"status": 2}, "it ended with status 2"),
    "process-killed": ({"signal": "signal"}, "it was ended by signal"),
    "mppe": ({}, "MPPE (RC4, 128 bits)"),
    "ipsec": ({"ike": ("a", "b"), "esp": ("c", "d")}, "IKE a/b, ESP c/d"),
    "ipsec-in-udp": ({"ike": ("a", "b"), "esp": ("c", "d")}, "IKE a/b, ESP in UDP c/d"),
    "ipsec-only-in-udp": (
        {"ike": ("a", "b"), "esp": ("c", "d")},
        "IKE a/b, ESP in UDP (by itself it does not come through) c/d",
    ),
    "with-weak-parts": (
        {"encryption": "encryption", "parts": ("a", "b")},
        "encryption; weak: a, b",
    ),
    "step-stopped": ({}, "the device is stopped: every client is blocked"),
    "step-opened": ({}, "the device is opened: no rule applies, every client goes out directly"),
    "step-no-rule": (
        {"client": "client", "target": "target"},
        'no enabled rule covers client: "Clients without a rule" applies, which is target',
    ),
    "step-rule": ({"id": 2, "ip": "ip", "client": "client"}, "rule 2 (ip) covers client"),
    "step-narrower-rule": (
        {"id": 2, "ip": "ip", "client": "client", "others": ("7 (10.0.0.0/24)",)},
        "rule 2 (ip) covers client, and is narrower than rule 7 (10.0.0.0/24)",
    ),
    "step-rule-disabled": (
        {"id": 2, "client": "client"},
        "rule 2 (client) is disabled, and so passed over",
    ),
    "step-local-names": (
        {"domain": "domain"},
        "names of domain are asked locally, whatever the target",
    ),
    "step-target": ({"target": "target"}, "the target is target"),
    "step-member": (
        {"target": "target", "strategy": "strategy"},
        "its new connections go to target, by the group's strategy strategy",
    ),
    "step-member-passed": (
        {"target": "target", "reason": "reason"},
        "target comes first and is passed over: reason",
    ),
    "step-next-member": ({"target": "target"}, "if that fails, they go to target"),
    "step-next-of-members": ({"n": 2}, "if that fails, they go to one of 2 other members"),
    "step-no-next-member": ({}, "no other member works: if that fails, they are blocked"),
    "step-blocked": ({"reason": "reason"}, "it is blocked: reason"),
    "step-own-route": ({}, "it leaves by the device's own route"),
    "step-egress": ({"egresses": ("wan1", "wan2")}, "it leaves by wan1 or wan2"),
    "step-doubt": ({"reason": "reason"}, "it may be blocked: reason"),
    "step-listed": (
        {"destination": "destination", "entry": "entry", "node": "node"},
        "destination is on the whitelist (entry): it goes to node",
    ),
    "step-list-for-rules": (
        {"entry": "entry"},
        "the whitelist's entry does not apply: it is for clients with a rule",
    ),
    "step-list-not-dns": (
        {"entry": "entry"},
        "the whitelist's entry does not apply: DNS goes the client's own way",
    ),
    "step-unlisted": (
        {"destination": "destination", "protocol": "protocol", "port": 2},
        "destination, protocol port 2, is not on the whitelist",
    ),
    "step-listed-addresses": ({}, "listed addresses count too, should the name stand for one"),
    "rule-created": ({"ip": "ip"}, "rule for ip created"),
    "rule-saved": ({"ip": "ip"}, "rule for ip saved"),
    "rule-enabled": ({"ip": "ip"}, "rule for ip enabled"),
    "rule-disabled": ({"ip": "ip"}, "rule for ip disabled"),
    "rule-deleted": ({"ip": "ip"}, "rule for ip deleted"),
    "created": ({"thing": "thing", "name": "name"}, "thing name created"),
    "saved": ({"thing": "thing", "name": "name"}, "thing name saved"),
    "deleted": ({"thing": "thing", "name": "name"}, "thing name deleted"),
    "enabled": ({"thing": "thing", "name": "name"}, "thing name enabled"),
    "disabled": ({"thing": "thing", "name": "name"}, "thing name disabled"),
    "some-updated": ({"n": 2, "thing": "thing"}, "2 things updated"),
    "some-enabled": ({"n": 2, "thing": "thing"}, "2 things enabled"),
    "some-disabled": ({"n": 2, "thing": "thing"}, "2 things disabled"),
    "some-deleted": ({"n": 2, "thing": "thing"}, "2 things deleted"),
    "some-imported": ({"n": 2, "thing": "thing", "skipped": 2}, "2 things imported, 2 skipped"),
    "whitelist-saved": ({}, "whitelist saved"),
    "settings-saved": ({}, "settings saved"),
    "now-stopped": ({}, "stopped: every client is blocked"),
    "now-started": ({}, "started: the rules apply"),
    "now-opened": ({}, "opened: no rule applies, every client goes out directly"),
    "backup-restored": (
        {"rules": 2, "nodes": 2, "lines": 2, "services": 2},
        "backup restored: 2 rules, 2 nodes, 2 lines, 2 proxy services",
    ),
    "logged-in": ({}, "logged in"),
    "logged-out": ({}, "logged out"),
    "password-chosen": ({}, "the console's password is chosen"),
    "password-changed": ({}, "password changed; every other session has ended"),
    "session-ended": ({"id": 2}, "session 2 ended"),
    "sessions-ended": ({"n": 2}, "2 other sessions ended"),
    "token-shown": ({}, "API token shown"),
    "token-created": ({"name": "a"}, "token a created"),
    "token-deleted": ({"name": "a"}, "token a deleted"),
    "token-expired": ({"name": "a"}, "the token a has expired"),
    "token-gone": ({}, "the token was deleted"),
    "no-such-token": ({"id": "1f2e3d4c"}, "there is no token 1f2e3d4c"),
    "too-many-tokens": ({"most": 64}, "there may be at most 64 tokens: delete some first"),
    "time-to-come": ({}, "x must be in the future"),
    "token-scope": (
        {},
        "x must be read, write, admin, metrics, events, or rotate: with the name of a group or "
        "node",
    ),
    "token-reset": ({}, "API token reset; the old one does not count any more"),
    "license-installed": ({"serial": "serial"}, "license serial installed"),
    "rules-blocked-as": ({"n": 2, "reason": "reason"}, "2 rules are blocked, as reason"),
    "unruled-blocked-as": ({"reason": "reason"}, "clients without a rule are blocked, as reason"),
    "whitelist-blocked-as": (
        {"reason": "reason"},
        "the whitelist's destinations are blocked, as reason",
    ),
    "nodes-fail-as": ({"n": 2, "reason": "reason"}, "2 nodes do not work, as reason"),
    "services-fail-as": ({"n": 2, "reason": "reason"}, "2 proxy services do not work, as reason"),
    "node-fails-as": (
        {"name": "name", "reason": "reason"},
        "the node name does not work, as reason",
    ),
    "node-unfit": ({"name": "name", "reason": "reason"}, "the node name does not work: reason"),
    "domains-inactive": (
        {"n": 2},
        "2 domain entries are inactive, as domain recognition is switched off",
    ),
    "fields-unused": (
        {"fields": ("a", "b")},
        "these fields of config_json were kept and have no effect: a, b",
    ),
    "fields-unused-and-more": (
        {"fields": ("a", "b"), "n": 2},
        "these fields of config_json were kept and have no effect: a, b and 2 more",
    ),
    "of-lines": ({"names": ("a", "b"), "note": "note"}, "a, b: note"),
    "dns-profile-unlicensed": (
        {},
        "its dns_profile has no effect, as the license does not have line_dns",
    ),
    "pptp-port": ({"port": 2}, "it will not come up: PPTP's client dials no other port than 2"),
    "of-row": ({"line": 2, "note": "note"}, "line 2: note"),
    "of-inner-row": ({"line": 2, "note": "note"}, "in line 2 of what it encodes: note"),
    "same-for-more": ({"n": 2}, "the same holds for 2 more lines"),
    "notes-on-more": ({"n": 2}, "there are notes on 2 more lines"),
    "nothing-replaced": ({}, "nothing was replaced, since no row could be used"),
    "node-there-already": ({"name": "name"}, "there is a node name already"),
    "no-effect": ({"key": "key"}, '"key" has no effect here'),
    "taken-as": ({"key": "key", "word": "word"}, '"key" is taken as word'),
    "name-unseen-removed": ({}, "what cannot be seen was left out of the name"),
    "name-comma-replaced": ({}, "a comma in the name became a blank"),
    "name-cut": ({"most": 2}, "the name was cut to 2 characters"),
    "name-numbered": ({"name": "name"}, "an earlier row has the name: this node is name"),
    "utc-time": ({}, "x must be a time in UTC in the form 2026-11-20T22:58:40Z"),
    "history-order": ({}, "x must be before to"),
    "history-top-days": ({"most": 2}, "x must be at most 2 days before to"),
    "no-such-device": ({"mac": "02:00:5e:00:53:01"}, "there is no device 02:00:5e:00:53:01"),
    "changed-since-read": (
        {"thing": "rule", "name": "10.0.0.5"},
        "the rule 10.0.0.5 has been changed since it was read",
    ),
    "settings-changed": ({}, "the settings have been changed since they were read"),
    "alerts-changed": ({}, "what is alerted has been changed since it was read"),
    "whitelist-changed": ({}, "the whitelist has been changed since it was read"),
    "device-changed": (
        {"mac": "02:00:5e:00:53:01"},
        "the device 02:00:5e:00:53:01 has been changed since it was read",
    ),
    "mac-form": ({}, "x must be a hardware address, such as 02:00:5e:00:53:01"),
    "nothing-of-device": ({}, "one of name, comment and is_bound must be given"),
    "device-without-rule": (
        {"mac": "02:00:5e:00:53:01"},
        "x takes false only: the address of the device 02:00:5e:00:53:01 has no rule of its own",
    ),
    "device-shares-mac": (
        {"mac": "02:00:5e:00:53:01"},
        "x takes false only: several addresses are in use behind 02:00:5e:00:53:01, which is a"
        " router or has several of its own",
    ),
    "address-is-bound": (
        {"ip": "10.0.0.5", "mac": "02:00:5e:00:53:01"},
        "x takes false only: the rule of 10.0.0.5 belongs to the device 02:00:5e:00:53:01",
    ),
    "device-is-bound": (
        {"ip": "10.0.0.5", "mac": "02:00:5e:00:53:01"},
        "x takes false only: the rule of 10.0.0.5 belongs to the device 02:00:5e:00:53:01 already",
    ),
    "rule-followed": (
        {"mac": "02:00:5e:00:53:01", "ip": "10.0.0.6", "before": "10.0.0.5"},
        "the rule of 02:00:5e:00:53:01 has followed it from 10.0.0.5 to 10.0.0.6",
    ),
    "device-unfollowed": (
        {"name": "a", "mac": "02:00:5e:00:53:01", "ip": "10.0.0.6", "before": "10.0.0.5"},
        "device a (02:00:5e:00:53:01) is at 10.0.0.6, which has a rule of its own: its rule stays"
        " at 10.0.0.5",
    ),
    "device-impostor": (
        {
            "ip": "10.0.0.5",
            "owner": "a",
            "other": "02:00:5e:00:53:01",
            "name": "b",
            "mac": "02:00:5e:00:53:02",
        },
        "10.0.0.5 belongs to the device a (02:00:5e:00:53:01), and b (02:00:5e:00:53:02) uses it:"
        " its packets are dropped",
    ),
    "device-saved": ({"name": "a"}, "device a saved"),
    "device-forgotten": ({"mac": "02:00:5e:00:53:01"}, "device 02:00:5e:00:53:01 forgotten"),
    "connections-closed": ({"n": 2, "client": "10.0.0.5"}, "2 connections of 10.0.0.5 closed"),
    "connections-left": (
        {"closed": say("connections-closed", n=2, client="10.0.0.5"), "n": 1},
        "2 connections of 10.0.0.5 closed; 1 more is open",
    ),
    "no-such-connection": (
        {"client": "10.0.0.5", "id": 7},
        "10.0.0.5 has no connection 7 any more",
    ),
    "device-new": (
        {"name": "a", "mac": "02:00:5e:00:53:01", "ip": "10.0.0.5"},
        "new device a (02:00:5e:00:53:01) at 10.0.0.5",
    ),
    "device-new-without-address": (
        {"name": "a", "mac": "02:00:5e:00:53:01"},
        "new device a (02:00:5e:00:53:01), without an address yet",
    ),
    "devices-new": ({"n": 2, "names": ("a", "b")}, "2 new devices: a, b"),
    "device-moved": (
        {"name": "a", "mac": "02:00:5e:00:53:01", "ip": "10.0.0.6", "before": "10.0.0.5"},
        "device a (02:00:5e:00:53:01) is now at 10.0.0.6, and was at 10.0.0.5 before",
    ),
    "devices-unwritten": (
        {"reason": "disk full"},
        "what is seen of devices is not stored: disk full",
    ),
    "history-unwritten": ({"reason": "reason"}, "the history is not kept: reason"),
    "history-full": ({"n": 2}, "the history is full: 2 more are not recorded"),
    "thing-named": ({"thing": "node", "name": "a"}, "node a"),
    "the-whitelist": ({}, "the whitelist"),
    "the-settings": ({}, "the settings"),
    "some-created": ({"n": 2, "thing": "thing"}, "2 things created"),
    "change-undone": ({"revision": 7, "text": "node a deleted"}, "change 7 undone: node a deleted"),
    "no-such-change": ({"revision": 7}, "there is no change 7, or it is not kept any more"),
    "change-n": ({"n": 7}, "change 7"),
    "a-later-change": ({}, "a later change"),
    "undo-done": ({"revision": 7, "by": 9}, "change 7 was undone already, by change 9"),
    "undo-nothing": ({"revision": 7}, "everything is as it was before change 7 already"),
    "undo-without-inverse": (
        {"revision": 7, "n": 64},
        "change 7 cannot be undone any more: of all changes, 64 MB are kept at most",
    ),
    "undo-changed": (
        {"object": "node a", "by": "change 9", "fields": ("name", "group")},
        "node a has been changed by change 9: name, group",
    ),
    "undo-touched": ({"object": "node a", "by": "change 9"}, "node a has been changed by change 9"),
    "undo-gone": ({"object": "node a", "by": "change 9"}, "node a has been deleted by change 9"),
    "undo-taken": (
        {"object": "node a", "holder": "node b"},
        "node a cannot come back: node b has its name, address or port",
    ),
    "undo-unfit": ({"problem": "it is so"}, "it would not be valid: it is so"),
    "undo-over-quota": (
        {"number": 2, "quota": 1},
        "that makes 2 proxy services, and the license allows 1",
    ),
    "trial-begun": (
        {"until": "noon"},
        "what changes from now on is taken back at noon, unless it is confirmed",
    ),
    "trial-confirmed": ({"n": 2}, "confirmed: 2 changes on trial stay"),
    "trial-running": (
        {"until": "noon"},
        "changes are on trial until noon: unless confirmed, they are taken back",
    ),
    "trial-there": ({"until": "noon"}, "changes are on trial already, until noon"),
    "no-trial": ({}, "no changes are on trial"),
    "trial-stuck": (
        {"reason": "reason"},
        "the changes on trial cannot be taken back: reason",
    ),
    "trial-without-change": ({}, "nothing was changed"),
    "trial-ended": ({"text": "node a deleted"}, "the changes on trial taken back: node a deleted"),
    "alert-url-form": (
        {},
        "x must be a URL of Apprise's, such as ntfys://host/topic, without spaces",
    ),
    "alert-url-scheme": (
        {"schemes": ("json", "ntfy")},
        "x must begin with a service and ://; services are json, ntfy",
    ),
    "alert-url-unverified": (
        {},
        "x must not switch the check of certificates off (verify)",
    ),
    "alert-url-file": (
        {"name": "template"},
        "x must not name a file of this device (parameter template)",
    ),
    "errand-host-none": ({}, "x must name a host"),
    "errand-host-inner": (
        {"host": "10.0.0.1"},
        "x must not lead to this device or into a LAN (10.0.0.1)",
    ),
    "errand-host-ipv6": ({"host": "::1"}, "x must name a host by its name or IPv4 address (::1)"),
    "errand-host-form": (
        {"host": "127.1"},
        "x must have an IPv4 address in its usual form (127.1)",
    ),
    "errand-refused-host": (
        {"host": "10.0.0.1"},
        "10.0.0.1 is not connected to: it is this device, in a LAN, or no IPv4 address",
    ),
    "alert-url-unread": ({}, "the service takes another form of URL"),
    "alert-url-wrong": ({"reason": "a"}, "the service takes another URL: a"),
    "errand-ended": ({}, "the process that does it has ended"),
    "errand-too-long": ({"n": 2}, "more than 2 bytes were exchanged"),
    "errand-no-answer": ({"seconds": 30}, "no answer within 30 s"),
    "page-broken": ({"reason": "a"}, "the page cannot be read: a"),
    "page-redirect-plain": ({}, "a redirect leads to no https:// address"),
    "page-redirects": ({"most": 5}, "there are more than 5 redirects"),
    "page-status": ({"status": 500}, "the server answers with the status 500"),
    "page-too-long": ({"most": 2}, "the page has more than 2 bytes"),
    "alert-hours": ({}, "x must be hours of the day, such as 23:00-07:00, or empty"),
    "via-blocks": ({}, "x must let something out"),
    "alert-channels-many": ({"most": 32}, "there may be 32 alert channels at most"),
    "via-gone": ({"via": "a"}, "the target a leads nowhere"),
    "alert-many-wait": ({}, "too many alerts wait"),
    "alert-no-way": ({}, "no way worked for a day"),
    "alert-more": ({"n": 2}, "and 2 more"),
    "alert-several": ({"n": 2}, "2 alerts"),
    "alert-enough": ({"name": "a"}, "a has sent as many messages within an hour as it may"),
    "alert-test-title": ({"host": "gw1"}, "gw1: a test of alerts"),
    "alert-test": ({"via": "DIRECT"}, "This message was sent by the target DIRECT."),
    "alert-line-online": ({"name": "a"}, "the line a is online again"),
    "alert-url-own": (
        {"host": "203.0.113.1"},
        "x must not lead to this device or into a LAN (203.0.113.1)",
    ),
    "alert-policy-saved": ({}, "alerts saved"),
    "alert-no-channel": ({"id": 9}, "x must name channels that there are: 9 is none"),
    "subscription-not-included": ({}, "its name does not match include"),
    "subscription-excluded": ({}, "its name matches exclude"),
    "subscription-nodes-many": ({"most": 5}, "a list may have 5 nodes at most"),
    "subscriptions-many": ({"most": 5}, "there may be 5 subscriptions at most"),
    "subscription-no-text": ({}, "the answer is no text in UTF-8"),
    "subscription-empty": (
        {"n": 2},
        "the answer has no node that is taken, and 2 rows are not",
    ),
    "subscription-refreshed": (
        {"name": "a", "added": 1, "changed": 2, "gone": 3},
        "subscription a refreshed: 1 added, 2 changed, 3 gone",
    ),
    "subscription-again": ({"name": "a"}, "subscription a can be fetched again"),
    "subscription-failed": (
        {"name": "a", "reason": "b"},
        "subscription a cannot be refreshed: b",
    ),
    "subscription-failing": (
        {"name": "a", "reason": "b"},
        "the nodes of subscription a are not kept up to date: b",
    ),
    "subscription-nodes-gone": (
        {"name": "a", "n": 1},
        "1 node is gone from the list of subscription a, and used here: its clients are blocked",
    ),
    "subscription-quota-low": (
        {"name": "a", "percent": 91},
        "subscription a has used 91 % of its quota",
    ),
    "subscription-expires": (
        {"name": "a", "at": "2026-01-01T00:00:00Z"},
        "subscription a ends at 2026-01-01T00:00:00Z",
    ),
    "node-gone": (
        {"name": "a", "at": "2026-01-01T00:00:00Z"},
        "node a has been gone from the list of its subscription since 2026-01-01T00:00:00Z",
    ),
    "headers-many": ({"most": 5}, "x must be an object of at most 5 fields"),
    "header-name": ({}, "x must have names of letters, digits and hyphens"),
    "header-own": ({"name": "Host"}, "x must not have the field Host, which egressd sets"),
    "header-text": (
        {"name": "A", "most": 5},
        "x must have texts of up to 5 ASCII characters (A)",
    ),
    "header-name-form": ({"most": 5}, "x must be a name of at most 5 letters, digits and hyphens"),
    "ascii-text": ({"most": 5}, "x must be a string of at most 5 printable ASCII characters"),
    "ascii-only": ({}, "x must be of ASCII characters"),
    "renames-many": ({"most": 5}, "x must be an object of at most 5 patterns"),
    "rename-unsuitable": (
        {"name": "a", "new": "b,", "reason": "it is so"},
        "x must not name the node a 'b,': it is so",
    ),
    "rename-place": (
        {},
        "x must name groups of its pattern as \\1, and a backslash as \\\\",
    ),
    "group-member": (
        {},
        "x must be DIRECT, a node's name, Group_<group name> or Interface:<interface name>",
    ),
    "group-member-missing": (
        {"kind": "node", "name": "a"},
        "x must be DIRECT, a node's name, Group_<group name> or Interface:<interface "
        "name>; there is no node 'a'",
    ),
    "group-member-twice": ({"name": "a"}, "x must not be in the list twice: a"),
    "group-members-many": (
        {"most": 64},
        "x must be at most 64 targets, those of its groups included",
    ),
    "group-depth": (
        {"most": 4},
        "x must not make a chain of more than 4 groups, each a member of the one before",
    ),
    "group-weights": (
        {"least": 1, "most": 100},
        "x must be an object of members and whole numbers from 1 to 100",
    ),
    "weight-of-no-member": ({}, "x must be the weight of a member"),
    "rotation-without-sticky": ({}, "x must be 0 unless strategy is sticky"),
    "rotation-needs-sticky": (
        {"name": "name"},
        "the strategy of group name must be sticky: with others all clients have one member, or "
        "their address decides",
    ),
    "rotation-unused": ({"name": "name"}, "no client of a rule goes by group name"),
    "rotation-of-no-client": (
        {"name": "name"},
        "client must be one whose own rule names group name",
    ),
    "rotation-of-nothing": (
        {"target": "a"},
        "x must be rotate: with Group_<group name>, or with the name of a node that has a "
        "change_ip_url; 'a' is neither",
    ),
    "link-scope-alone": (
        {"scope": "rotate:a"},
        "x must have no other scope beside rotate:a: its token is a link",
    ),
    "rotation-for-whom": (
        {"address": "10.0.0.1", "name": "a"},
        "x must be the address of a client, or all: the request comes from 10.0.0.1, which is no "
        "client of group a",
    ),
    "rotation-client-form": ({}, "x must be an IPv4 address, or all"),
    "rotation-gone": (
        {"target": "Group_a"},
        "Group_a, which the link is for, does not exist any more",
    ),
    "rotation-too-soon": ({"seconds": 3}, "too many rotations: try again in 3 seconds"),
    "rotation-of-whole-node": (
        {"name": "a"},
        "x must not be given: all clients of a have its exit",
    ),
    "node-without-change": ({"name": "a"}, "the node a has no change_ip_url"),
    "node-changes-already": ({"name": "a"}, "the node a is changing its address already"),
    "node-asked-to-change": ({"name": "a"}, "the node a is asked for another address"),
    "change-page-failed": (
        {"reason": "timed out"},
        "its change_ip_url had no good answer: timed out",
    ),
    "exit-unchanged": (
        {"ip": "192.0.2.1", "seconds": 120},
        "it leaves by 192.0.2.1 still, 120 s after it was asked for another address",
    ),
    "change-ip-via": (
        {},
        "x must be DIRECT, another node's name or Interface:<interface name>",
    ),
    "rotation-too-late": (
        {},
        "a restart came before its page was asked, and now it is too late to ask",
    ),
    "exit-before-unknown": (
        {"ip": "203.0.113.7"},
        "it leaves by 203.0.113.7, and its address from before is not known",
    ),
    "no-such-rotation": ({}, "there is no such rotation"),
    "no-such-link": ({}, "there is no such link"),
    "rotation-alone": ({"name": "name"}, "group name has no other member that works"),
    "group-rotated": ({"n": 2, "name": "name"}, "2 clients have another member of group name"),
    "weights-without-spread": ({}, "x must be empty unless strategy is spread"),
    "name-filter": ({"reason": "reason"}, "x must be a pattern of RE2: reason"),
    "failback-form": (
        {"least": 1, "most": 64},
        "x must be at_once, never or a whole number of minutes from 1 to 64",
    ),
    "groups-many": ({"most": 64}, "there may be 64 groups with settings at most"),
    "no-such-group": ({"name": "a"}, "there is no group a"),
    "group-without-settings": ({"name": "a"}, "the group a has no settings of its own"),
    "group-not-of-nodes": (
        {"name": "a", "member": "DIRECT"},
        "x must not be a group with members other than nodes: a has DIRECT",
    ),
    "group-in-use": (
        {"user": "the whitelist", "name": "a", "member": "DIRECT"},
        "x must be nodes, also those of its groups: the whitelist uses the group a, of "
        "which DIRECT is none",
    ),
    "group-empty": ({"name": "a"}, "the group a has no members"),
    "clients-without-a-rule": ({}, "traffic without a rule"),
}


def test_every_code_is_pinned() -> None:
    assert SENTENCES.keys() == PINNED.keys()


@pytest.mark.parametrize("code", PINNED)
def test_a_sentence_stays_as_it_is(code: str) -> None:
    values, sentence = PINNED[code]
    assert str(Fault(("x",), code, values)) == sentence


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("clients-blocked", ("1 client of a is blocked: b", "2 clients of a are blocked: b")),
        ("rules-blocked-as", ("1 rule is blocked, as b", "2 rules are blocked, as b")),
        ("and-others", ("a and 1 other", "a and 2 others")),
        ("some-deleted", ("1 rule deleted", "2 rules deleted")),
        ("domains-inactive", ("1 domain entry is inactive", "2 domain entries are inactive")),
    ],
)
def test_a_number_chooses_the_form_of_words(code: str, texts: tuple[str, str]) -> None:
    values = {"targets": "a", "reason": "b", "names": "a", "thing": "rule"}
    for n, text in zip((1, 2), texts, strict=True):
        assert say(code, n=n, **values).startswith(text)
