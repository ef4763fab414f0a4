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

OF_EVENTS: Final[Mapping[str, str]] = {
    "clients-out-again": "{n} client{n:|s} of {targets} get{n:s|} out again",
    "egress-fails": "{name} does not work: {reason}",
    "egress-works": "{name} works again",
    "some-fail": "{names} {n:fails|fail}: {reason}",
    "some-answer": "{names} {n:answers|answer} again",
    "more-changed": "{n} more have changed",
    "over": "over: {problem}",
    "exit-changed": "{name} leaves by {ip}, and left by {before} before",
    "exit-shared": "{n} leave by the same address {ip}: {names}",
}
"""Texts of events, which have codes and values of their own: the console does not show them."""

SENTENCES: Final[Mapping[str, str]] = {
    **OF_EVENTS,
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
    "relay-tunnel": (
        "{field} must not be {name}: a node of {protocol} is no relay, since its server knows one "
        "end of a key"
    ),
    "unmanaged-tunnel": (
        "{field} must not be a node of {protocol}: it serves clients with a rule only, since its "
        "server knows one end of a key"
    ),
    "relay-without-udp": (
        "{field} must name a node that carries UDP, which {protocol} is spoken over; {name!r} does "
        "not"
    ),
    "server-is-device": "{field} must not be this device itself",
    "node-leads-here": "{name}: {problem}",
    "server-not-public": (
        "{field} must be on the internet unless the import takes private ones: it is {reason}"
    ),
    "address-here": "an address of this machine's",
    "address-private": "a private address",
    "address-link-local": "a link-local address",
    "address-multicast": "a multicast address",
    "address-reserved": "a reserved address",
    "address-inner-name": "a name of a private network",
    "address-in-lan": "in a LAN",
    "another-program": "another program",
    "the-proxy-service": "the proxy service {name}",
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
    "one-peer": "{field} must have one peer: a node has one server",
    "differs-from": "{field} must not be the same as {other}",
    "base64-text": "{field} must be a text in base64",
    "wireguard-key": "{field} must be a key of WireGuard: 32 bytes in base64",
    "tunnel-address": "{field} must be an IPv4 address, such as 10.2.0.2",
    "tunnel-networks": "{field} must be a list of at most {most} networks, an IPv4 one among them",
    "reserved-bytes": "{field} must be three bytes, such as [1, 2, 3] or AQID",
    "ssh-private-key": "{field} must be a private key in PEM, from its BEGIN to its END line",
    "ssh-host-keys": "{field} must be a list of keys such as ssh-ed25519 AAAA…",
    "ssh-algorithms": "{field} must be a list of some of {choices}",
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
    "either": "{forms: or }",
    "list": "a list, each {each}",
    "list-of-at-most": "a list of at most {most}, each {each}",
    "null": "null",
    "object-with-fields": "a JSON object with the fields {fields}",
    "empty-object": "a JSON object, {{}}",
    "no-such-session": "there is no such session",
    # Lines.
    "interface-name-with-prefix": "{field} must be an interface name that begins with {prefix}",
    "auto-or-interface": "{field} must be auto or an interface name",
    "pptp-port-only": "{field} must be {port} for pptp: its client dials no other",
    "one-line": "{field} must be one line of at most {most} characters",
    "begins-as-file": "{field} must not begin with @/",
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
    "entry-is-address": "{field}: {entry!r} must be a domain name; addresses belong in {other}",
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
    "of-thing": "{thing} {id}: {problem}",
    "of-things": "{things}: {problem}",
    "of-whitelist": "whitelist: {problem}",
    "of-settings": "settings: {problem}",
    "not-unique": "{field} must not be another's: {value}",
    "from-1": "{field} must be 1 or more",
    "revision-negative": "meta: revision must be 0 or more, and is {number}",
    "counter-out-of-range": "counters: {name} must be from 0 to {most}, and is {number}",
    "number-of-no-target": "numbers: {name!r} must be a group or an interface",
    "number-too-low": "numbers: {name!r} must have 1 or more, and has {number}",
    "number-not-unique": "numbers: {name!r} must not have the number of {other!r}",
    "backup-over-quota": "the backup has {number} proxy services, and {quota} are allowed",
    "no-backup": "the file is no backup that can be put back: {reason}",
    # --- Sentences about the device's state. ---
    "several": "{parts:; }",
    "and-others": "{names} and {n} other{n:|s}",
    # Interfaces, routes and gateways.
    "no-interface": "there is no interface {name}",
    "interface-down": "the interface {name} is down",
    "interface-without-address": "the interface {name} has no address",
    "interface-without-gateway": "the interface {name} has no gateway",
    "default-route-by-line": "the device's default route leads by the line {name}",
    "default-route-down": "the interface {name} of the device's default route is down",
    "default-route-by-no-wan": "the device's default route leads by {name}, which is no WAN",
    "no-default-route": "the device has no default route",
    "policy-rules-before": (
        "another program's policy rules come before egressd's and send clients elsewhere (ip rule "
        "show)"
    ),
    "gateway-silent": "the gateway {address} of {name} does not answer",
    "no-lan-found": (
        "no LAN was found, because no interface has a private address; no client is served: set "
        "[lan] interfaces in the configuration"
    ),
    "source-missing": (
        "{name} does not have the address {address} that [wan] sources names: new connections of "
        "clients leave by {name} with its own address"
    ),
    "no-wan-found": (
        "no WAN was found, since no interface has a default route: set [wan] interfaces in the "
        "configuration"
    ),
    "lan-missing": (
        "the configuration's LAN {name} is not there, or has no address: what comes in by "
        "interfaces that may be it under another name is not forwarded"
    ),
    "networks-overlap": (
        "{name} has the network {network}, which overlaps that of {lan}: what is for the one goes "
        "to the other, so clients may be blocked; give one of them another network"
    ),
    "multicast-dropped": (
        "another program routes multicast to {lans}, and it is dropped: to let it in, set [lan] "
        "multicast = true in the configuration"
    ),
    "router-ignored": (
        "the IPv6 router {router} of {name} is not listened to, since that is LAN and WAN at once "
        "and a client could pose as it: if it is yours, set [wan] gateways6 = "
        '{{ {name} = "{router}" }} in the configuration'
    ),
    "router-poses": (
        "{router} poses as an IPv6 router behind {name}: this machine does not listen to it, but "
        "what clients send by it goes past their rules"
    ),
    "route-not-added": "could not add {route}: {reason}",
    "rule-not-added": "could not add rule {rule}: {reason}",
    "route-not-removed": "could not remove {what}: {reason}",
    "no-such-interface": "there is no such interface",
    "parameter-not-set": "could not set {name} to {value}: {reason}",
    "policy-rules-ahead": (
        "policy rules of other programs come before egressd's, and clients may be blocked: give "
        "them a priority above {most} ({command}; priorities {priorities})"
    ),
    # Other programs.
    "firewall-drops": (
        "another program's firewall drops what its rules do not let through, and none of them "
        "names {lans}: clients may be blocked ({program}, table {table}, {chains})"
    ),
    "marks-in-the-way": (
        "another program marks connections, or packets behind egressd, which goes by marks of its "
        "own: clients may be blocked (nftables, table {table}, {chains})"
    ),
    "slower-by-rules": (
        "traffic by {name} takes more of the processor, since another program's rules there are to "
        "see every packet (list them: {commands:; })"
    ),
    "upload-limits-passed": (
        "another program's filters may take what comes in by {name} past clients' upload limits "
        "(list them: tc filter show dev {name} ingress)"
    ),
    "filters-passed": (
        "another program's filters for what goes out by {name} do not apply to clients with a "
        "download limit (list them: tc filter show dev {name} egress)"
    ),
    "flowtable-in-the-way": (
        "another program's flowtable {flowtable} takes connections past egressd's rules: a client "
        "that moves may go on by its former way for some seconds (list it: nft list flowtable "
        "{flowtable})"
    ),
    "udp-ports-in-use": (
        "UDP through nodes to outside ports on which this machine has servers of its own may get "
        "no answers ({ports}), since the kernel does not let the engine answer from another port: "
        "{reason}"
    ),
    "library-replaced": (
        "the nftables library was upgraded, and netd goes on with the version before it: to change "
        "over without cutting anything, run systemctl reload egressd-netd"
    ),
    # What a machine lacks, with cost and cure.
    "kernel-old": "Linux {release} is older than 6.1, the oldest tested version",
    "kernel-old-cost": "functions may be missing",
    "kernel-old-cure": "apt install linux-image-amd64 (arm64: linux-image-arm64), and boot it",
    "no-btf": "the kernel has no BTF (/sys/kernel/btf/vmlinux), or is older than 6.0",
    "no-btf-cost": "all packets take the slow path: less throughput for known flows",
    "no-btf-cure": "a kernel with CONFIG_DEBUG_INFO_BTF=y, such as Debian's",
    "modules-unknown": "/lib/modules/{release} has no list of modules",
    "modules-unknown-cost": (
        "it is not known what the kernel can do; netd reports it when it starts"
    ),
    "modules-unknown-cure": "none is needed if the service runs without problems",
    "modules-missing": "the kernel has no {names}",
    "modules-cure": "a kernel with these modules, such as Debian's linux-image-amd64 or -arm64",
    "modules-cost-rules": "netd cannot write its rules, and every client stays blocked",
    "modules-cost-engine": (
        "the engine cannot receive traffic: clients of nodes, groups and resolvers are blocked"
    ),
    "modules-cost-limits": "speed limits are not enforced",
    "modules-cost-lines": "VPN lines cannot be dialled",
    "modules-cost-l2tp": "no L2TP lines",
    "modules-cost-pptp": "no PPTP lines with encryption",
    "modules-cost-ipsec": "no L2TP lines with IPsec",
    "no-lan-here": "no interface is a LAN",
    "no-lan-here-cost": "there is no client",
    "no-lan-here-cure": "give the LAN's interface a private address, or set [lan] interfaces",
    "no-wan-here": "no interface has a default route",
    "no-wan-here-cost": "no traffic leaves, except by lines",
    "no-wan-here-cure": "configure the uplink, or set [wan] interfaces and [wan] gateways",
    "one-arm": "LAN and WAN share an interface: {names} (one-arm use)",
    "one-arm-cost": (
        "once egressd runs, nothing outside the LAN's network can connect to this machine by it "
        "over IPv4: SSH from another network is cut"
    ),
    "one-arm-cure": "log in from the LAN or over IPv6, and have a console of the machine at hand",
    "interface-named": "the configuration names {name}, which this machine does not have now",
    "interface-named-cost": "its clients are blocked until it is there",
    "interface-named-cure": "correct [lan] or [wan] interfaces, or plug it in",
    "port-taken": "another program listens at TCP port {port}, which is for {purpose}",
    "port-taken-cost": "the api does not start",
    "port-taken-cure": (
        "stop it (ss -ltnp 'sport = :{port}'), or change [api] in the configuration"
    ),
    "no-resolver": "/etc/resolv.conf names no server that is not on this machine",
    "no-resolver-cost": "names are asked at [dns] domestic instead",
    "no-resolver-cure": "set [dns] device to resolvers that clients can reach",
    "no-dhcp": "no DHCP server runs here (UDP port 67)",
    "no-dhcp-cost": "clients use this machine only if they have it as their gateway",
    "no-dhcp-cure": (
        "docs/deployment.md has files for dnsmasq; or set the gateway on your DHCP server"
    ),
    "little-memory": "the machine has {mib} MiB of memory",
    "little-memory-cost": "large configurations and imports may need more; 1 GB is recommended",
    "little-memory-cure": "[engine] workers = 1 saves memory with more than 16 targets in use",
    "forwards-already": "this machine forwards packets now",
    "forwards-already-cost": "once egressd runs, clients without a rule are blocked",
    "forwards-already-cure": (
        "read docs/deployment.md, Before the first start; make rules at once"
    ),
    "clock-wrong": "the clock shows a year before 2025",
    "clock-wrong-cost": "TLS to nodes fails, and the console's certificate is not valid yet",
    "clock-wrong-cure": "apt install systemd-timesyncd, or set the clock (date)",
    "little-disk": "{mib} MiB are free for {folder}",
    "little-disk-cost": "changes are refused once it is full; what is in force stays in force",
    "little-disk-cure": "free at least 200 MiB",
    "netd-silent": "netd does not answer, so kernel and system are not checked: {reason}",
    "netd-silent-cost": "changes are refused; what netd put in force last stays in force",
    "netd-silent-cure": "journalctl -u egressd-netd shows the reason",
    # The connection table, and bounds.
    "table-nearly-full": (
        "{n} connections are tracked and {limit} is the limit: new ones are about to be dropped "
        "(net.netfilter.nf_conntrack_max)"
    ),
    "table-full": (
        "the connection table is full, and new connections are dropped: raise "
        "net.netfilter.nf_conntrack_max, which is {limit}"
    ),
    "files-used-up": (
        "all of the {limit} files that an engine worker may have open are in use: no new "
        "connection gets through it"
    ),
    "bound-of-source": "{source}: {bound}",
    "bound-connections": (
        "the bound of {n} connections through nodes is reached: further ones are refused"
    ),
    "bound-sessions": (
        "the bound of {n} UDP sessions through nodes is reached: further ones are refused"
    ),
    "bound-network-connections": (
        "the bound of {n} connections through nodes for all addresses of a network without a rule "
        "of their own is reached: further ones are refused"
    ),
    "bound-network-sessions": (
        "the bound of {n} UDP sessions through nodes for all addresses of a network without a rule "
        "of their own is reached: further ones are refused"
    ),
    "bound-resolver": (
        "the bound of {n} connections to resolvers is reached: further ones are refused"
    ),
    "bound-questions": ("more than {n} names a second are asked for: the rest gets no answer"),
    "bound-strangers": (
        "connections to the proxy service {service} do not sign in: further ones are refused"
    ),
    "bound-guesses": ("too many wrong passwords for proxy services: it has to wait for a minute"),
    "bound-api": "more than {n} new connections a second to the API: the rest has to wait",
    "bound-calls": (
        "the bound of {n} connections to proxy services is reached: further ones are refused"
    ),
    "bound-service": (
        "many callers of the proxy service {service} do not sign in: from outside, who has not "
        "signed in within ten minutes is refused"
    ),
    "bound-outside": (
        "the bound of {n} connections to proxy services from outside is reached: further ones are "
        "refused"
    ),
    "bound-of-address": (
        "{address} has {n} connections to the device, as many as an address may have"
    ),
    "bound-of-network": (
        "{network} has {n} connections to the device, as many as strangers may have"
    ),
    "bound-of-strangers": (
        "strangers have {n} connections to the device, as many as they may have"
    ),
    "bound-of-device": "there are {n} connections to the device, as many as there may be",
    "password-guessed": "the console's password is being guessed from {network}",
    # Updates.
    "update-failed": (
        "the update to version {wanted} failed, and version {in_force} is in force: {reason}"
    ),
    # Timed backups.
    "timed-backup-failed": "timed backups to {folder} fail: {reason}",
    "timed-backup-late": (
        "the timed backup to {folder} is late: neither egressd-timed-backup.timer nor `egressd "
        "serve` makes it"
    ),
    # The site's database.
    "site-away": "the site's database cannot be used, so that no change can be made: {reason}",
    "site-no-lease": (
        "this member of the site has no lease: it lets no client through until it is in step with "
        "the site"
    ),
    "site-replica-behind": (
        "the replica of the site's configuration on this box is out of date: {reason}"
    ),
    "pair-daemon-missing": (
        "{name} is not installed (apt install {name}), without which this box is no whole part of "
        "its pair"
    ),
    "pair-unfit": "[pair] does not fit this box, which is not active therefore: {fault}",
    "pair-unaddressed": (
        "{name} has no address of this box's own: in the pair it counts as a link that is down"
    ),
    "pair-number-taken": (
        "{address} on {name} sends VRRP adverts with this pair's number, {number}: give one of the "
        "two another router_id"
    ),
    "pair-address-taken": (
        "{address} on {name} announces the pair's shared address {shared} by VRRP as its own: "
        "clients whose packets reach that router are not served by the pair"
    ),
    "pair-sync-silent": (
        "the other box of the pair, {address}, does not answer on {name} (TCP port {port}): until "
        "it does, a takeover can end connections that begin now, and let go on others that are "
        "closed now"
    ),
    "pair-daemon-ends": "{name} has ended, and is started again: {how}",
    "site-untold": (
        "the site {site} does not know yet that this box has left it, and counts it as a silent "
        "member: {reason}"
    ),
    "site-without-lease": (
        "this box has no lease in its site, so that no client gets out and no change can be made: "
        "{reason}"
    ),
    "site-peer-blind": (
        "neither box of the pair reaches the site's database: clients are let through by the "
        "configuration that there is, and no change can be made"
    ),
    "site-peer-silent": (
        "neither the site's database nor the other box of the pair can be reached: clients are let "
        "through by this box's last configuration, and no change can be made"
    ),
    "site-outdated": (
        "the site's database has the schema of a newer egressd: upgrade this box, which follows "
        "the site until then and makes no change"
    ),
    "site-member-away": "the member {name} of the site is shut out: no client gets out by it",
    "site-member-shut": (
        "the member {name} of the site did not answer, and lets no client through until it has "
        "this change"
    ),
    "site-blocked-there": "on the member {name} of the site {targets} cannot be in force",
    # Resolvers.
    "asked-by": "by {name}",
    "asked-directly": "directly",
    "asked-locally": "locally",
    "asked-by-node": "through the node",
    "resolver-of-peer": "what the line's peer hands out",
    "nothing-answers": "nothing that is asked {way} answers ({servers})",
    "no-resolver-answers": "no resolver answers {way} ({servers})",
    "resolver-silent": "resolver {server} does not answer {way}: {other} is asked in its place",
    "resolver-outside": (
        "local resolver {server} is neither on this machine nor in a LAN or local network: it is "
        "not asked"
    ),
    # The engine, and nodes.
    "worker-fails": "engine worker {n}: {reason}",
    "worker-does-not-start": "it does not start: {reason}",
    "being-started": "it is being started",
    "start-too-slow": "it did not start within {seconds} s",
    "engine-crashes": "the engine crashes on it: {reason}",
    "quarantined": (
        "the engine crashes on its configuration ({reason}); it is started again when that "
        "changes, and tried every {minutes} minutes"
    ),
    "engine-crashed": "the engine crashed while measuring: {reason}",
    "engine-deaf": "the engine does not listen: {reason}",
    "engine-refuses-user": "the engine does not take its own user",
    "engine-field-unknown": "the engine does not know the field {field}",
    "silent": "it does not answer",
    "cannot-connect": "it cannot connect",
    "not-allowed": "it does not allow the connection",
    "network-unreachable": "the network is unreachable",
    "host-unreachable": "the host is unreachable",
    "connection-refused": "connection refused",
    "timed-out": "timed out",
    "timed-out-at": "timed out after {timeout} ms, {stage}",
    "stage-connecting": "connecting through the node",
    "stage-tls": "in the TLS handshake with the site",
    "stage-waiting": "waiting for an answer through the node",
    "no-tcp": "it does not carry TCP",
    "no-such-address": "it does not take such an address",
    "socks-reply": "SOCKS reply {number}",
    "node-name-unknown": "the node's name does not exist",
    "node-name-without-address": ("the node's name has no address of the asked kind (ip-version)"),
    "node-name-unresolved": "the node's name was not resolved: {reason}",
    "site-unreached": "the node does not reach the site: {reply}",
    "site-no-http": "the site's answer is not HTTP: {reason}",
    "exit-page-long": "the page has more than {most} bytes",
    "exit-page-form": "the page is neither an address nor lines of which one is ip=ADDRESS",
    "exit-page-address": "the page's address is none that a site can have seen",
    "wrong-login": "wrong user name or password",
    "wrong-ssh-login": "wrong user name, password or private key",
    "ssh-host-key-other": "the server's key is none of host-key",
    "node-password-wrong": "wrong password",
    "node-no-socks": "the node does not speak SOCKS5",
    "node-http-status": "the node answered with HTTP {status}",
    "tls-failure": "TLS failure: {reason}",
    "node-closed": "the node closed the connection",
    "node-closed-without-answer": (
        "the node closed the connection without an answer: a wrong password or key, or it does not "
        "reach the site"
    ),
    "node-unreachable": "the node is unreachable",
    "node-egress-blocked": "the node's egress is blocked",
    "node-silent": "the node does not answer",
    "node-interface-unknown": "the interface that it is reached through is unknown",
    "early-data-lost": (
        "ws-opts.max-early-data has no effect, as the engine of this Python loses early data with "
        "VMess"
    ),
    "nodes-lose": "{n} node{n:|s}: {loss}",
    "relay-gone": "there is no node {name}, which {other} dials through",
    "relays-in-circle": "the relays lead in a circle: {name} comes twice",
    "too-many-relays": "it would be dialled through more than {most} others",
    "hop-unfit": "{name} cannot be dialled: {reason}",
    "hop-tunnel": "{name} is no relay: a server of {protocol} knows one end of a key",
    "hop-without-udp": (
        "{name} is spoken over UDP ({protocol}), and {relay}, which it dials through, carries no "
        "UDP"
    ),
    # Blocked clients.
    "clients-blocked": "{n} client{n:|s} of {targets} {n:is|are} blocked: {reason}",
    "clients-nameless": "{n} client{n:|s} of {targets} cannot resolve names: {reason}",
    "unruled-blocked": "clients without a rule are blocked: {reason}",
    "whitelist-blocked": "the whitelist's destinations are blocked: {reason}",
    "wan-fails": "the WAN {name} does not work: {reason}",
    "many-reasons": "there are {n} reasons",
    "targets-nowhere": ("they lead nowhere (their target is gone, disabled, or cannot be dialled)"),
    "no-lan": "there is no LAN",
    "address-outside": "{address} is in none of the LANs' networks ({networks})",
    "device-stopped": "an operator has stopped the device",
    "no-node-out": "none of its nodes has a way out",
    "node-fails": "its node fails: {reason}",
    "nodes-fail": "all of its nodes fail: {reason}",
    "no-member-works": "none of its members works: {reason}",
    "member-silent": "{target}: the check of its group gets no answer",
    "line-offline": "the line {name} is offline: {reason}",
    "line-disabled": "the line {name} is disabled",
    "gone": "there is no {kind} {name}",
    "service-not-running": "the proxy service {name} does not run: {reason}",
    "target-rejects": "its target is REJECT",
    "target-blocks": "the target blocks",
    "udp-refused": ("its node does not carry UDP: it is refused at once, so that clients take TCP"),
    # Lines.
    "waiting": "waiting",
    "line-being-dialled": "{server} is being dialled",
    "own-line-disabled": "the line is disabled",
    "dialled-by-active-box": "the active box of the pair dials this line",
    "line-untold": "the data plane has not told of it yet",
    # The reasons why a line is down: what its server refuses, or does not answer.
    "login-refused": "the server refused the user name or password",
    "login-refused-saying": "the server refused the user name or password: {said}",
    "login-unanswered": "the server does not answer the login",
    "no-login-kind": "the server takes no kind of password that this line may use",
    "no-ms-chap": "the server does not ask for MS-CHAPv2, without which PPTP is not encrypted",
    "eap-only": "the server insists on EAP, by which lines do not log in",
    "account-in-use": "the account may still be in use at the server",
    "account-in-use-saying": "the account may still be in use at the server: {said}",
    "server-unproved": (
        "the server does not know the password itself, and may be another than it should be"
    ),
    "no-mppe": "the server does not encrypt PPTP with 128 bits (MPPE)",
    "mppe-in-l2tp": "the server wants MPPE inside L2TP, which egressd does not do",
    "l2tp-secret-wanted": (
        "the server wants a secret of L2TP's own, beside IPsec's, which lines do not have"
    ),
    "looped-back": "what is sent to the server comes back unchanged",
    "no-address-given": "the server gave no IP address",
    "one-address-given": "the server gives both ends of the line one address, {address}",
    "given-address-refused": "the server hands out {address}, {whose}",
    "whose-none": "which is nobody's address",
    "whose-lan": "which is in the LAN {name}",
    "whose-interface": "which is an address of {name}",
    "whose-gateway": "which is the gateway of {name}",
    "whose-server": "which is the address of a VPN server",
    "whose-resolver": "which is the address of a resolver",
    "no-gre": (
        "the PPTP server takes the call by TCP, but no GRE comes from it: something on the way "
        "drops IP protocol 47"
    ),
    "no-ppp": "the L2TP server takes the call, but no PPP comes from it",
    "l2tp-call-unanswered": "the L2TP server does not answer the call",
    "pptp-call-refused": "the PPTP server takes no call of this line",
    "pptp-call-refused-saying": "the PPTP server takes no call of this line: {said}",
    "pptp-call-ended": "the PPTP server ended the call",
    "closed-by-operator": "the server closed the connection for administrative reasons",
    "no-room-now": "the server has no room for the call at the moment",
    "no-room": "the server has no room for the call",
    "call-too-slow": "the call was not set up in the time that the server gives",
    "tunnel-exists": "the server has a tunnel of this line already",
    "tunnel-not-allowed": "the server does not let this line have a tunnel",
    "other-l2tp-version": "the server speaks another version of L2TP",
    "server-shuts-down": "the server is being shut down",
    "server-stopped-answering": "the server stopped answering",
    "server-ended-line": "the server ended the line",
    "server-ended-line-saying": "the server ended the line: {said}",
    "server-closed": "the server closed the connection",
    "server-closed-saying": "the server closed the connection: {said}",
    "line-too-slow": "{server} took too long to set the line up",
    "no-pptp-server": "no PPTP server answers at {server}",
    "no-pptp-server-saying": "no PPTP server answers at {server}: {said}",
    "no-l2tp-server": "no L2TP server answers at {server} port {port}",
    "no-l2tp-by-ipsec": "no L2TP server answers at {server} port {port} through IPsec",
    "no-l2tp-by-esp": (
        "no L2TP server answers at {server} port {port} through IPsec: something on the way may "
        "drop ESP (IP protocol 50), and UDP is tried in its place"
    ),
    "no-l2tp-by-either": (
        "no L2TP server answers at {server} port {port}, neither by ESP nor by ESP in UDP"
    ),
    # IPsec.
    "no-ipsec-server": "no IPsec server answers at {server}",
    "ipsec-too-slow": "IPsec with {server} took too long",
    "secret-refused": "the server refused the IPsec secret",
    "secret-unanswered": (
        "the server does not answer once the IPsec secret is used: it is wrong, or something on "
        "the way drops UDP port 4500"
    ),
    "no-encryption-taken": "the server accepts none of the IPsec encryptions offered",
    "encryption-not-offered": "the server answers with an IPsec encryption that was not offered",
    "ipsec-not-allowed": "the server does not let this address use L2TP over IPsec",
    "ipsec-refused": "the server refused IPsec: {notify}",
    "server-ended-ipsec": "the server ended the IPsec association",
    "ipsec-ended": "the IPsec association ended",
    "ike-port-in-use": (
        "another program has UDP port {port}, which IPsec needs; Debian's own strongSwan is "
        "stopped by: systemctl disable --now strongswan strongswan-starter"
    ),
    "ike-fails": "the IKE daemon failed: {reason}",
    "ike-does-not-start": "the IKE daemon does not start: {said}",
    "ike-ended": "the IKE daemon ended",
    "ike-hung-up": "the IKE daemon hung up or does not answer",
    "ike-was-ended": "the IKE daemon was ended",
    "charon-gone": "charon has gone",
    "charon-silent": "charon does not answer",
    "charon-lacks-command": "charon knows no {command}",
    # What a line needs of the machine.
    "kernel-lacks-ppp": "the kernel cannot do PPP: {said}",
    "kernel-lacks-mppe": "the kernel cannot encrypt PPTP: it has no module ppp_mppe",
    "kernel-lacks-ipsec": "the kernel cannot do IPsec (module esp4): {said}",
    "module-missing": (
        "the running kernel cannot do {what}: it has no module {module}; Debian's "
        "linux-image-amd64 has it"
    ),
    "programs-missing": "programs are missing: apt install {packages: }",
    "server-name-unresolved": "the server's name {host} cannot be resolved",
    "no-route-to-server": "there is no route to reach {server} by",
    "no-address-for-server": "there is no address on {name} to reach {server} by",
    "packets-astray": "packets do not reach {server} by {name}: {reason}",
    "no-route": "there is no route",
    "leave-by-other": "they would leave by {name}",
    "same-address": "{name} has the same address, {address}",
    "carrier-readdressed": "the address of {name} is now {address}",
    "carrier-changed": "the way to {server} is now {name}",
    "secret-lines-full": "no more than {most} lines can have a secret",
    "clear-lines-full": "no more than {most} L2TP lines can be without a secret",
    "line-not-started": "it could not be started: {reason}",
    "no-own-mounts": "its daemons may not have mounts of their own: {said}",
    "daemon-ended": "its daemon ended",
    "daemon-ended-saying": "its daemon ended: {said}",
    "with-end": "{reason} ({how})",
    "process-ended": "it ended",
    "process-ended-with": "it ended with status {status}",
    "process-killed": "it was ended by {signal}",
    # The encryption of a line.
    "mppe": "MPPE (RC4, 128 bits)",
    "ipsec": "IKE {ike:/}, ESP {esp:/}",
    "ipsec-in-udp": "IKE {ike:/}, ESP in UDP {esp:/}",
    "ipsec-only-in-udp": "IKE {ike:/}, ESP in UDP (by itself it does not come through) {esp:/}",
    "with-weak-parts": "{encryption}; weak: {parts}",
    # The explanation of a client's path.
    "step-stopped": "the device is stopped: every client is blocked",
    "step-opened": "the device is opened: no rule applies, every client goes out directly",
    "step-no-rule": (
        'no enabled rule covers {client}: "Clients without a rule" applies, which is {target}'
    ),
    "step-rule": "rule {id} ({ip}) covers {client}",
    "step-narrower-rule": "rule {id} ({ip}) covers {client}, and is narrower than rule {others}",
    "step-rule-disabled": "rule {id} ({client}) is disabled, and so passed over",
    "step-local-names": "names of {domain} are asked locally, whatever the target",
    "step-target": "the target is {target}",
    "step-member": "its new connections go to {target}, by the group's strategy {strategy}",
    "step-member-passed": "{target} comes first and is passed over: {reason}",
    "step-next-member": "if that fails, they go to {target}",
    "step-next-of-members": "if that fails, they go to one of {n} other members",
    "step-no-next-member": "no other member works: if that fails, they are blocked",
    "step-blocked": "it is blocked: {reason}",
    "step-own-route": "it leaves by the device's own route",
    "step-egress": "it leaves by {egresses: or }",
    "step-doubt": "it may be blocked: {reason}",
    "step-listed": "{destination} is on the whitelist ({entry}): it goes to {node}",
    "step-list-for-rules": (
        "the whitelist's {entry} does not apply: it is for clients with a rule"
    ),
    "step-list-not-dns": ("the whitelist's {entry} does not apply: DNS goes the client's own way"),
    "step-unlisted": "{destination}, {protocol} port {port}, is not on the whitelist",
    "step-listed-addresses": "listed addresses count too, should the name stand for one",
    # --- What a change did, and what to know about it. ---
    "rule-created": "rule for {ip} created",
    "rule-saved": "rule for {ip} saved",
    "rule-enabled": "rule for {ip} enabled",
    "rule-disabled": "rule for {ip} disabled",
    "rule-deleted": "rule for {ip} deleted",
    "created": "{thing} {name} created",
    "saved": "{thing} {name} saved",
    "deleted": "{thing} {name} deleted",
    "enabled": "{thing} {name} enabled",
    "disabled": "{thing} {name} disabled",
    "some-updated": "{n} {thing}{n:|s} updated",
    "some-enabled": "{n} {thing}{n:|s} enabled",
    "some-disabled": "{n} {thing}{n:|s} disabled",
    "some-deleted": "{n} {thing}{n:|s} deleted",
    "some-imported": "{n} {thing}{n:|s} imported, {skipped} skipped",
    "whitelist-saved": "whitelist saved",
    "settings-saved": "settings saved",
    "now-stopped": "stopped: every client is blocked",
    "now-started": "started: the rules apply",
    "now-opened": "opened: no rule applies, every client goes out directly",
    "backup-restored": (
        "backup restored: {rules} rule{rules:|s}, {nodes} node{nodes:|s}, {lines} line{lines:|s}, "
        "{services} proxy service{services:|s}"
    ),
    "logged-in": "logged in",
    "logged-out": "logged out",
    "password-chosen": "the console's password is chosen",
    "password-changed": "password changed; every other session has ended",
    "session-ended": "session {id} ended",
    "sessions-ended": "{n} other session{n:|s} ended",
    "token-shown": "API token shown",
    "token-created": "token {name} created",
    "token-deleted": "token {name} deleted",
    "token-expired": "the token {name} has expired",
    "token-gone": "the token was deleted",
    "no-such-token": "there is no token {id}",
    "too-many-tokens": "there may be at most {most} tokens: delete some first",
    "time-to-come": "{field} must be in the future",
    "token-scope": (
        "{field} must be read, write, admin, metrics, events, or rotate: with the name of a group "
        "or node"
    ),
    "token-reset": "API token reset; the old one does not count any more",
    "license-installed": "license {serial} installed",
    "rules-blocked-as": "{n} rule{n: is|s are} blocked, as {reason}",
    "unruled-blocked-as": "clients without a rule are blocked, as {reason}",
    "whitelist-blocked-as": "the whitelist's destinations are blocked, as {reason}",
    "nodes-fail-as": "{n} node{n: does|s do} not work, as {reason}",
    "services-fail-as": "{n} proxy service{n: does|s do} not work, as {reason}",
    "node-fails-as": "the node {name} does not work, as {reason}",
    "node-unfit": "the node {name} does not work: {reason}",
    "domains-inactive": (
        "{n} domain {n:entry is|entries are} inactive, as domain recognition is switched off"
    ),
    "fields-unused": "these fields of config_json were kept and have no effect: {fields}",
    "fields-unused-and-more": (
        "these fields of config_json were kept and have no effect: {fields} and {n} more"
    ),
    "of-lines": "{names}: {note}",
    "dns-profile-unlicensed": (
        "its dns_profile has no effect, as the license does not have line_dns"
    ),
    "pptp-port": "it will not come up: PPTP's client dials no other port than {port}",
    "of-row": "line {line}: {note}",
    "of-inner-row": "in line {line} of what it encodes: {note}",
    "same-for-more": "the same holds for {n} more lines",
    "notes-on-more": "there are notes on {n} more lines",
    "nothing-replaced": "nothing was replaced, since no row could be used",
    "node-there-already": "there is a node {name} already",
    "no-effect": '"{key}" has no effect here',
    "taken-as": '"{key}" is taken as {word}',
    "name-unseen-removed": "what cannot be seen was left out of the name",
    "name-comma-replaced": "a comma in the name became a blank",
    "name-cut": "the name was cut to {most} characters",
    "name-numbered": "an earlier row has the name: this node is {name}",
    # Changes, and what becomes of them.
    "thing-named": "{thing} {name}",
    "the-whitelist": "the whitelist",
    "the-settings": "the settings",
    "some-created": "{n} {thing}{n:|s} created",
    "change-undone": "change {revision} undone: {text}",
    "no-such-change": "there is no change {revision}, or it is not kept any more",
    "change-n": "change {n}",
    "a-later-change": "a later change",
    "undo-done": "change {revision} was undone already, by change {by}",
    "undo-nothing": "everything is as it was before change {revision} already",
    "undo-without-inverse": (
        "change {revision} cannot be undone any more: of all changes, {n} MB are kept at most"
    ),
    "undo-changed": "{object} has been changed by {by}: {fields}",
    "undo-touched": "{object} has been changed by {by}",
    "undo-gone": "{object} has been deleted by {by}",
    "undo-taken": "{object} cannot come back: {holder} has its name, address or port",
    "undo-unfit": "it would not be valid: {problem}",
    "undo-over-quota": "that makes {number} proxy services, and the license allows {quota}",
    "trial-begun": "what changes from now on is taken back at {until}, unless it is confirmed",
    "trial-confirmed": "confirmed: {n} change{n:|s} on trial {n:stays|stay}",
    "trial-running": "changes are on trial until {until}: unless confirmed, they are taken back",
    "trial-there": "changes are on trial already, until {until}",
    "no-trial": "no changes are on trial",
    "trial-stuck": "the changes on trial cannot be taken back: {reason}",
    "trial-without-change": "nothing was changed",
    "trial-ended": "the changes on trial taken back: {text}",
    # The history.
    "utc-time": "{field} must be a time in UTC in the form 2026-11-20T22:58:40Z",
    "history-order": "{field} must be before to",
    "history-top-days": "{field} must be at most {most} days before to",
    # Devices.
    "no-such-device": "there is no device {mac}",
    "changed-since-read": "the {thing} {name} has been changed since it was read",
    "settings-changed": "the settings have been changed since they were read",
    "alerts-changed": "what is alerted has been changed since it was read",
    "whitelist-changed": "the whitelist has been changed since it was read",
    "device-changed": "the device {mac} has been changed since it was read",
    "mac-form": "{field} must be a hardware address, such as 02:00:5e:00:53:01",
    "nothing-of-device": "one of name, comment and is_bound must be given",
    "device-without-rule": (
        "{field} takes false only: the address of the device {mac} has no rule of its own"
    ),
    "device-shares-mac": (
        "{field} takes false only: several addresses are in use behind {mac}, which is a router or"
        " has several of its own"
    ),
    "address-is-bound": "{field} takes false only: the rule of {ip} belongs to the device {mac}",
    "device-is-bound": (
        "{field} takes false only: the rule of {ip} belongs to the device {mac} already"
    ),
    "rule-followed": "the rule of {mac} has followed it from {before} to {ip}",
    "device-saved": "device {name} saved",
    "device-forgotten": "device {mac} forgotten",
    "connections-closed": "{n} connection{n:|s} of {client} closed",
    "connections-left": "{closed}; {n} more {n:is|are} open",
    "no-such-connection": "{client} has no connection {id} any more",
    "device-new": "new device {name} ({mac}) at {ip}",
    "device-new-without-address": "new device {name} ({mac}), without an address yet",
    "devices-new": "{n} new devices: {names}",
    "device-moved": "device {name} ({mac}) is now at {ip}, and was at {before} before",
    "device-unfollowed": (
        "device {name} ({mac}) is at {ip}, which has a rule of its own: its rule stays at {before}"
    ),
    "device-impostor": (
        "{ip} belongs to the device {owner} ({other}), and {name} ({mac}) uses it: its packets are"
        " dropped"
    ),
    "devices-unwritten": "what is seen of devices is not stored: {reason}",
    "history-unwritten": "the history is not kept: {reason}",
    "history-full": "the history is full: {n} more {n:is|are} not recorded",
    # Errands: messages to services, and pages.
    "errand-host-none": "{field} must name a host",
    "errand-host-inner": "{field} must not lead to this device or into a LAN ({host})",
    "errand-host-ipv6": "{field} must name a host by its name or IPv4 address ({host})",
    "errand-host-form": "{field} must have an IPv4 address in its usual form ({host})",
    "via-blocks": "{field} must let something out",
    "via-gone": "the target {via} leads nowhere",
    "errand-refused-host": (
        "{host} is not connected to: it is this device, in a LAN, or no IPv4 address"
    ),
    "errand-ended": "the process that does it has ended",
    "errand-too-long": "more than {n} bytes were exchanged",
    "errand-no-answer": "no answer within {seconds} s",
    "page-broken": "the page cannot be read: {reason}",
    "page-redirect-plain": "a redirect leads to no https:// address",
    "page-redirects": "there are more than {most} redirects",
    "page-status": "the server answers with the status {status}",
    "page-too-long": "the page has more than {most} bytes",
    # Alerts.
    "alert-url-form": (
        "{field} must be a URL of Apprise's, such as ntfys://host/topic, without spaces"
    ),
    "alert-url-scheme": "{field} must begin with a service and ://; services are {schemes}",
    "alert-url-file": "{field} must not name a file of this device (parameter {name})",
    "alert-url-unverified": "{field} must not switch the check of certificates off (verify)",
    "alert-url-unread": "the service takes another form of URL",
    "alert-url-wrong": "the service takes another URL: {reason}",
    "alert-hours": "{field} must be hours of the day, such as 23:00-07:00, or empty",
    "alert-channels-many": "there may be {most} alert channels at most",
    "alert-many-wait": "too many alerts wait",
    "alert-no-way": "no way worked for a day",
    "alert-more": "and {n} more",
    "alert-several": "{n} alerts",
    "alert-enough": "{name} has sent as many messages within an hour as it may",
    "alert-test-title": "{host}: a test of alerts",
    "alert-test": "This message was sent by the target {via}.",
    "alert-line-online": "the line {name} is online again",
    "alert-url-own": "{field} must not lead to this device or into a LAN ({host})",
    "alert-policy-saved": "alerts saved",
    "alert-no-channel": "{field} must name channels that there are: {id} is none",
    # Subscriptions.
    "subscription-not-included": "its name does not match include",
    "subscription-excluded": "its name matches exclude",
    "subscription-nodes-many": "a list may have {most} nodes at most",
    "subscriptions-many": "there may be {most} subscriptions at most",
    "subscription-no-text": "the answer is no text in UTF-8",
    "subscription-empty": "the answer has no node that is taken, and {n} {n:row is|rows are} not",
    "subscription-refreshed": (
        "subscription {name} refreshed: {added} added, {changed} changed, {gone} gone"
    ),
    "subscription-again": "subscription {name} can be fetched again",
    "subscription-failed": "subscription {name} cannot be refreshed: {reason}",
    "subscription-failing": "the nodes of subscription {name} are not kept up to date: {reason}",
    "subscription-nodes-gone": (
        "{n} {n:node is|nodes are} gone from the list of subscription {name}, and used here:"
        " {n:its|their} clients are blocked"
    ),
    "subscription-quota-low": "subscription {name} has used {percent} % of its quota",
    "subscription-expires": "subscription {name} ends at {at}",
    "node-gone": "node {name} has been gone from the list of its subscription since {at}",
    "header-name-form": "{field} must be a name of at most {most} letters, digits and hyphens",
    "ascii-text": "{field} must be a string of at most {most} printable ASCII characters",
    "headers-many": "{field} must be an object of at most {most} fields",
    "header-name": "{field} must have names of letters, digits and hyphens",
    "header-own": "{field} must not have the field {name}, which egressd sets",
    "header-text": "{field} must have texts of up to {most} ASCII characters ({name})",
    "ascii-only": "{field} must be of ASCII characters",
    "renames-many": "{field} must be an object of at most {most} patterns",
    "rename-unsuitable": "{field} must not name the node {name} {new!r}: {reason}",
    "rename-place": "{field} must name groups of its pattern as \\1, and a backslash as \\\\",
    # Groups.
    "group-member": (
        "{field} must be DIRECT, a node's name, Group_<group name> or Interface:<interface name>"
    ),
    "group-member-missing": (
        "{field} must be DIRECT, a node's name, Group_<group name> or Interface:<interface "
        "name>; there is no {kind} {name!r}"
    ),
    "group-member-twice": "{field} must not be in the list twice: {name}",
    "group-members-many": "{field} must be at most {most} targets, those of its groups included",
    "group-depth": (
        "{field} must not make a chain of more than {most} groups, each a member of the one before"
    ),
    "group-weights": (
        "{field} must be an object of members and whole numbers from {least} to {most}"
    ),
    "weight-of-no-member": "{field} must be the weight of a member",
    "rotation-without-sticky": "{field} must be 0 unless strategy is sticky",
    "rotation-needs-sticky": "the strategy of group {name} must be sticky: with others all clients "
    "have one member, or their address decides",
    "rotation-unused": "no client of a rule goes by group {name}",
    "rotation-of-no-client": "client must be one whose own rule names group {name}",
    "rotation-alone": "group {name} has no other member that works",
    "rotation-of-nothing": (
        "{field} must be rotate: with Group_<group name>, or with the name of a node that has a "
        "change_ip_url; {target!r} is neither"
    ),
    "link-scope-alone": "{field} must have no other scope beside {scope}: its token is a link",
    "rotation-for-whom": (
        "{field} must be the address of a client, or all: the request comes from {address}, which "
        "is no client of group {name}"
    ),
    "rotation-client-form": "{field} must be an IPv4 address, or all",
    "rotation-gone": "{target}, which the link is for, does not exist any more",
    "rotation-too-soon": "too many rotations: try again in {seconds} {seconds:second|seconds}",
    "change-ip-via": "{field} must be DIRECT, another node's name or Interface:<interface name>",
    "rotation-of-whole-node": "{field} must not be given: all clients of {name} have its exit",
    "node-without-change": "the node {name} has no change_ip_url",
    "node-changes-already": "the node {name} is changing its address already",
    "node-asked-to-change": "the node {name} is asked for another address",
    "change-page-failed": "its change_ip_url had no good answer: {reason}",
    "exit-unchanged": "it leaves by {ip} still, {seconds} s after it was asked for another address",
    "rotation-too-late": "a restart came before its page was asked, and now it is too late to ask",
    "exit-before-unknown": "it leaves by {ip}, and its address from before is not known",
    "no-such-rotation": "there is no such rotation",
    "no-such-link": "there is no such link",
    "group-rotated": "{n} {n:client has|clients have} another member of group {name}",
    "weights-without-spread": "{field} must be empty unless strategy is spread",
    "name-filter": "{field} must be a pattern of RE2: {reason}",
    "failback-form": (
        "{field} must be at_once, never or a whole number of minutes from {least} to {most}"
    ),
    "groups-many": "there may be {most} groups with settings at most",
    "no-such-group": "there is no group {name}",
    "group-without-settings": "the group {name} has no settings of its own",
    "group-not-of-nodes": (
        "{field} must not be a group with members other than nodes: {name} has {member}"
    ),
    "group-in-use": (
        "{field} must be nodes, also those of its groups: {user} uses the group {name}, of "
        "which {member} is none"
    ),
    "group-empty": "the group {name} has no members",
    "clients-without-a-rule": "traffic without a rule",
}
