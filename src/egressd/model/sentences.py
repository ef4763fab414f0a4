"""The sentence of each fault's code. All sentences are here.

``{field}`` stands for the field; the other names are the fault's values. A sentence is part of the
API's answers: scripts print it, people read it; programs use the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TARGET_FORMS: Final = (
    "DIRECT, REJECT, a node's name, Group_<group name> or Interface:<interface name>"
)
"""The forms of a target, spelled out."""

SENTENCES: Final[Mapping[str, str]] = {
    "other": "{text}",
    # Texts.
    "length": "{field} must have {least} to {most} characters",
    "too-long": "{field} must have at most {most} characters",
    "too-many-bytes": "{field} must have at most {most} bytes",
    "control-characters": "{field} must not contain control characters",
    "empty": "{field} must not be empty",
    "comma": "{field} must not contain a comma",
    "outer-white-space": "{field} must not begin or end with white space",
    # Numbers and words.
    "whole-number": "{field} must be a whole number from {least} to {most}",
    "one-of": "{field} must be one of {choices}",
    "url": "{field} must be an http or https URL of at most {most} characters, without a user name",
    # Addresses, hosts and interfaces.
    "ipv4-address": "{field} must be an IPv4 address",
    "ipv4-or-cidr": "{field} must be an IPv4 address or a CIDR without host bits",
    "ipv4-or-cidrs": (
        "{field} must be IPv4 addresses or CIDRs without host bits; {given!r} is not"
    ),
    "ipv4-or-host": "{field} must be an IPv4 address or a host name",
    "domain-or-ipv4": "{field} must be a domain name or an IPv4 address",
    "dns-servers": "{field} must be at most {most} IPv4 addresses",
    "dns-servers-needed": "{field} must not be empty when {profile} is custom",
    "dns-servers-needed-by-node": "{field} must not be empty: {name}'s node_dns_profile is custom",
    "interface-prefix": "{field} must be a bare interface name, without {prefix}",
    "interface-loopback": (
        "{field} must not be lo, by which this device is reached and nothing else"
    ),
    "interface-name": (
        "{field} must be an interface name of 1 to {most} characters: letters, digits, and after "
        "the first also _ . @ -"
    ),
    # Names and targets.
    "name-reserved": ("{field} must not be DIRECT or REJECT nor begin with Group_ or Interface:"),
    "name-looks-reserved": (
        "{field} must not look like DIRECT or REJECT nor begin like Group_ or Interface:"
    ),
    "name-not-normal": "{field} must be in Unicode's normal form NFC",
    "name-begins-with-mark": "{field} must not begin with a combining mark",
    "name-unseen-character": "{field} must not contain U+{point}, which cannot be seen",
    "name-looks-taken": "{field} must not look like another's: there is a {thing} {name} already",
    "name-taken": "{field} must not be another's: there is a {thing} {name} already",
    "name-unsuitable": "{field} must suit the node {name}, which names it: {reason}",
    "names-used-up": (
        "{name!r} is one name too many: {most} that begin with {prefix} have been used on this "
        "device"
    ),
    "target-form": f"{{field}} must be {TARGET_FORMS}",
    "target-missing": f"{{field}} must be {TARGET_FORMS}; there is no {{kind}} {{name!r}}",
    "whitelist-target": "{field} must be DIRECT, a node's name or Group_<group name>",
    "whitelist-target-missing": (
        "{field} must be DIRECT, a node's name or Group_<group name>; {given!r} is none"
    ),
    # What there is not, and what there may not be more of.
    "no-such-id": "there is no {thing} with the id {id}",
    "no-such-node": "there is no node {name}",
    "no-such-line": "there is no {type} line {name}",
    "quota-reached": "all {quota} proxy services that are allowed exist already",
    # Rules.
    "rule-exists": "{field} must not have a rule already: {ip} has one",
    "nothing-to-update": "one of update_target, update_upload and update_download must be true",
    # Nodes.
    "both-given": "{field} and {other} must not both be given",
    "relay-circle": "{field} must not lead in a circle: {circle}",
    "relay-chain": "{field} must not lead through more than {most} others",
    "relay-missing": "{field} must name a node; there is no node {name!r}",
    "relay-without-udp": (
        "{field} must name a node that carries UDP, which {protocol} is spoken over; {name!r} does "
        "not"
    ),
    "server-is-device": "{field} must not be this device itself",
    "node-leads-here": "{name}: {problem}",
    "server-not-public": (
        "{field} must be on the internet unless the import takes private ones: it is {reason}"
    ),
    "node-unsuitable": "the node {name} does not take these settings: {reason}",
    "engine-refuses": "{field} must be a configuration that the engine takes: {reason}",
    "node-name": "{field} must be a node's name",
    "config-interface": "{field} must be an interface name of 1 to {most} characters",
    "engine-form": "{field} must be valid for the engine: {reason}",
    "takes": "{field} must be {takes}",
    "not-given": "{field} must not be given: {reason}",
    # The kinds of a configuration's values.
    "object": "{field} must be an object",
    "text": "{field} must be text of at most {most} characters",
    "text-without-colon": "{field} must be text of at most {most} bytes without a colon",
    "text-list": "{field} must be a list of at most {most} texts",
    "word": "{field} must be {word}",
    "host": "{field} must be a host name or an IP address",
    "ip-address": "{field} must be an IP address",
    "uuid": "{field} must be a UUID",
    "user-id": (
        "{field} must be a UUID, or a text of at most {most} bytes that servers make one of"
    ),
    "headers": "{field} must be an object of HTTP header names and texts",
    "header-lists": "{field} must be an object of HTTP header names and lists of texts",
    "http-method": "{field} must be an HTTP method",
    "http-path": "{field} must be an HTTP path whose % are followed by two hexadecimal digits",
    "http-paths": "{field} must be a list of at most {most} HTTP paths",
    "alpn": "{field} must be a list of at most 64 names of 1 to {most} bytes",
    "server-name": "{field} must be the server's name (SNI) alone",
    "reality-key": "{field} must be an X25519 public key: 43 base64url characters",
    "reality-short-id": "{field} must be at most 16 hexadecimal digits, an even number of them",
    "ech-config": "{field} must be an ECHConfigList in base64",
    "grpc-service": (
        "{field} must be a service's name: of paths, which begin with /, the engine has but "
        "/NAME/Tun"
    ),
    "rate": "{field} must be a rate such as 100 or 100 Mbps",
    "ports": "{field} must be ports and ranges such as 443,8000-9000",
    "hop-interval": (
        "{field} must be a whole number from {least} to {most}, or a range such as 15-30"
    ),
    # What a node's configuration says beside something else.
    "differs": "{field} must be the same as {other} when both are given",
    "given-together": "{field} and {other} must be given together",
    "needed-by": "{field} must be given when {other} is",
    "tls-needed": "{field} must be true when {other} is given",
    "no-tls-beneath": "{field} must be false: the engine has no TLS beneath this protocol",
    "no-tls-to-socks": "{field} must be false: the engine does not speak SOCKS over TLS",
    "tcp-only": "{field} must be tcp: the engine has no other transport here",
    "tcp-with-flow": "{field} must be tcp when flow is given",
    "http-with-tls": "{field} must not be http when tls is true; HTTP/2 over TLS is h2",
    "early-data-with-upgrade": "{field} must be 0 with HTTP upgrade",
    "certificate-name": (
        "{field} must be the server's name (SNI), which is all that the engine checks a "
        "certificate against"
    ),
    "ech-with-reality": "{field} must be false when reality-opts is given",
    "ech-needs-config": (
        "{field} must be given when ech-opts.enable is true: over QUIC the engine does not "
        "look one up"
    ),
    "obfs-mode": "{field} must be http or tls",
    "cipher-key": "{field} must be a key of {size} bytes in base64 with this cipher",
    "one-key": "{field} must be one key: this cipher has no identity keys",
    "plugin-mode": "{field} must be {modes} with {plugin}",
    "plugin-verifies": "{field} must be false: the engine's plugin always verifies",
    "plugin-one-name": "{field} must be plugin-opts.host: the engine's plugin has one name",
    # JSON text.
    "control-characters-in-key": "a key of {field} must not contain control characters",
    "json-object": "{field} must be a JSON object",
    "json-syntax": "{field} must be a JSON object: {reason} at line {line} column {column}",
    "json-size": "{field} must not be over {most} bytes",
    "json-depth": "{field} must not be nested over {most} deep",
    "json-key-twice": "{field} must not hold the key {key!r} twice",
    "json-number": "{field} must not hold the number {number}",
    "json-number-size": "{field} must not hold a number too large",
    # Text of rows.
    "too-many-rows-of-text": "{field} must have at most {most} rows",
    "too-many-lines": "{field} must have at most {most} lines",
    # Lines.
    "line-type-fixed": "{field} must stay {type}: it cannot change",
    "line-name": (
        "{field} must begin with {prefix}, go on with letters, digits or _ . @ - and have at most "
        "{most} characters"
    ),
    "file-name": "{field} must not begin with @/, which the VPN programs take for a file's name",
    "line-not-normal": ("server, port and secret must be in the form that they are stored in"),
    # Proxy services.
    "port-reserved": ("{field} must not be one that the system reserves: {port} is for {reason}"),
    "port-in-use": "{field} must be free: {user} listens on {port}",
    "colon": "{field} must not contain a colon, which ends it in HTTP (RFC 7617)",
    "username-needed": "{field} must not be empty when a password is given",
    # The whitelist's entries.
    "too-many-entries": "{field} must have at most {most} entries",
    "entry-scheme": "{field}: {entry!r} must begin with {schemes} or no scheme",
    "entry-port": "{field}: {entry!r} must end with a port from 1 to 65535",
    "entry-is-address": "{field}: {entry!r} must be a domain name; addresses belong in ips",
    "entry-domain": (
        "{field}: {entry!r} must be a domain name, alone or as <scheme>://<domain>:<port>"
    ),
    "entry-ipv6": "{field}: {entry!r} must be IPv4: clients' IPv6 is not routed",
    "entry-network": "{field}: {entry!r} must be an IPv4 address or CIDR",
    "entry-host-bits": "{field}: {entry!r} must not have host bits: {network}",
    # Requests and their bodies.
    "missing": "{field} is missing: it must be {takes}",
    "unknown-field": "{field} is not a field here; the fields are {fields}",
    "given-twice": "{name} must not be given twice",
    "boolean": "{field} must be true or false",
    "string": (
        "{field} must be a string of at most {most} characters, none of them a control character"
    ),
    "string-of-length": (
        "{field} must be a string of {least} to {most} characters, none of them a control character"
    ),
    "id": "{field} must be a whole number from 1",
    "text-of-lines": "{field} must be text without control characters",
    "text-of-rows": "{field} must be text of one row a line",
    "text-of-bytes": "{field} must be text of at most {most} bytes",
    "text-of-object": "{field} must be the text of a JSON object, of at most {most} characters",
    "url-form": "{field} must be an http or https URL of at most {most} characters",
    "protocol-form": (
        "{field} must be a protocol's name, such as socks5, ss, vmess, vless or trojan"
    ),
    "interface-form": "{field} must be an interface's bare name of 1 to {most} characters",
    "interface-form-or-empty": (
        "{field} must be an interface's bare name of 1 to {most} characters, or an empty string"
    ),
    "line-name-form": (
        "{field} must be a name that begins with l2tp_ or pptp_, of at most {most} characters"
    ),
    "target-form-or-empty": f"{{field}} must be {TARGET_FORMS}, or an empty string",
    "word-open": '{field} must be the word "open"',
    "empty-beside": "{field} must be empty when {other} is given",
    "no-dns-server": "{field} must name a DNS server when node_dns_profile is custom",
    "no-dns-server-of-line": "{field} must hold a DNS server when dns_profile is custom",
    "no-target": "{field} must not be empty when update_target is true",
    "no-update": ("{field} must be true where no other update flag is: a batch updates something"),
    "content-type": "Content-Type must be {media_type} on a request with a body",
    "content-encoding": "Content-Encoding must not be used: the body must come as it is",
    "body-size": "{field} must not be larger than {most} bytes",
    "body-late": "{field} did not arrive within {seconds} seconds",
    "body-utf-8": "{field} must be JSON in UTF-8",
    "body-syntax": "{field} must be JSON: {reason} at line {line}, column {column}",
    "body-number": "{field} must be JSON: {number} is not a JSON number",
    "body-depth": "{field} must not nest deeper than {most} levels",
    "body-json": "{field} must be JSON",
    "body-misfit": "{field} does not fit: {reason}",
    "body-broken-off": "{field} did not arrive",
    "content-type-only": "Content-Type must be {media_type}",
    "too-many-streams": "too many event streams are open",
    "too-many-streams-of-caller": "too many event streams are open: a caller may have {most}",
    # The console.
    "wrong-code": (
        "the setup code is wrong, or was used already; `egressd console code` shows or makes one"
    ),
    "wrong-password": "the password is wrong",
    "too-soon": "too many wrong attempts: try again in {seconds} seconds",
    "password-form": ("{field} must have {least} to {most} characters, none of them a control"),
    # The license.
    "license-refused": "the license is not installed: {reason}",
    "trial-calls-used-up": "all {number} trial calls of the license are used up",
    # The device as a whole.
    "too-many-rows": "there may be at most {most} {things}, and would be {number}",
    "no-way-to-try": "there is no way to try: {reason}",
    "time": "{field} must be a time such as 2026-11-20T22:58:40Z",
    "backup-unfit": "the backup says what this device does not take: {problem}",
    "backup-also-unfit": "{problem}",
    "backup-over-quota": "the backup has {number} proxy services, and {quota} are allowed",
    "no-backup": "the file is no backup that can be put back: {reason}",
}
