"""Local TCP and UDP sockets that talk to clients, through sock_diag (linux/inet_diag.h).

A connection of a TPROXY listener has the client as its remote address, and as its local address the
client's destination. Conntrack does not reach these connections: SOCK_DESTROY (``ss -K``) ends
them, which the application sees as ECONNABORTED.
"""

from __future__ import annotations

import errno
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network
from itertools import islice
from socket import AF_INET, IPPROTO_TCP, IPPROTO_UDP, SOCK_DGRAM, inet_ntoa, socket
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi
from egressd.netd.kernel.address_ranges import Ranges
from egressd.netd.kernel.netlink import (
    NetlinkError,
    NetlinkSocket,
    attribute,
    attributes,
)

_REQUEST = struct.Struct("=BBBxI48s")
"""inet_diag_req_v2: family, protocol, extensions, states, socket id."""
_ANSWER = struct.Struct("=4x48s")
"""The beginning of inet_diag_msg: family, state, timer, retransmissions; socket id."""
_TIMED = struct.Struct("=2xBB48sI8xI")
"""More of it: the running timer, the number of retransmissions, the socket id; ms until the timer
expires, queues, user."""
_CLOSED: Final = 3
"""The timer of a connection that its program has closed and the kernel alone keeps, in the state
FIN_WAIT2 or TIME_WAIT (inet_twsk_diag_fill of net/ipv4/tcp_diag.c or inet_diag.c)."""
_ENDING: Final = {uapi.TCP_FIN_WAIT1, uapi.TCP_FIN_WAIT2, uapi.TCP_LAST_ACK, uapi.TCP_CLOSING}
"""The states of a connection whose program has ended its own side, or the whole of it."""
_INODE = struct.Struct("=68xI")
"""The end of inet_diag_msg: the inode of the socket, or 0 if no program has it."""
_ID = struct.Struct("=2s2s4s12x4s12x12x")
"""inet_diag_sockid: ports and addresses, local and remote; interface and cookie."""

_WITH_INFO: Final = 1 << (uapi.INET_DIAG_INFO - 1)
_MESSAGE_BYTES: Final = 72
"""Bytes of inet_diag_msg, which attributes follow."""
_TRANSFERRED = struct.Struct("=120xQQ")
"""tcp_info (linux/tcp.h): bytes that the peer has acknowledged, and those received."""
_SILENT = struct.Struct("=44xI4xI")
"""tcp_info: milliseconds since data was last sent, and last received."""

# A UDP socket with a peer counts as established, others as closed.
_STATES: Final = 0xFFF & ~(1 << uapi.TCP_TIME_WAIT | 1 << uapi.TCP_CLOSE | 1 << uapi.TCP_LISTEN)

_OPERATION = struct.Struct("=BBH")
"""inet_diag_bc_op: code, bytes to advance if it holds, and if it does not."""
_CONDITION = struct.Struct("=BBxxi4s")
"""inet_diag_hostcond: family, prefix length, port (-1: any), address."""
_STEP: Final = _OPERATION.size + _CONDITION.size
_LOOPBACK: Final = 127
"""The first byte of loopback addresses."""
_DNS_PORT: Final = (53).to_bytes(2, "big")
_FEW: Final = 64
"""Number of networks or ports up to which the kernel filters the list of sockets; for more, it
lists all sockets."""


class ClientSocket(NamedTuple):
    """A local socket and its peer."""

    protocol: int
    """``socket.IPPROTO_TCP`` or ``IPPROTO_UDP``."""
    local: tuple[IPv4Address, int]
    remote: tuple[IPv4Address, int]
    id: bytes
    """The kernel's identity of the socket (inet_diag_sockid), including the cookie."""


class ResolverConnection(NamedTuple):
    """A client's TCP connection to a resolver, through a TPROXY listener."""

    sent_s: float
    """Seconds since data was last sent to the client, or since the connection began."""
    received_s: float
    """Seconds since the client last sent data, or since the connection began."""
    id: bytes
    """The kernel's identity of the socket (inet_diag_sockid), including the cookie."""


class CallerConnection(NamedTuple):
    """A TCP connection that a remote program has made to this machine."""

    local: tuple[IPv4Address, int]
    remote: tuple[IPv4Address, int]
    sent: int
    """Bytes that the peer has acknowledged."""
    received: int
    """Bytes received from the peer."""
    id: bytes
    """The kernel's identity of the socket (inet_diag_sockid), including the cookie."""


def is_unanswered(local: IPv4Address, remote: IPv4Address, remote_port: int) -> bool:
    """Return whether a TCP connection from `local` to `remote` still waits for the first answer.

    Raises OSError if the kernel refuses.
    """
    request = _REQUEST.pack(AF_INET, IPPROTO_TCP, 0, 1 << uapi.TCP_SYN_SENT, bytes(_ID.size))
    wanted = remote_port.to_bytes(2, "big"), local.packed, remote.packed
    with NetlinkSocket(uapi.NETLINK_SOCK_DIAG) as asked:
        bodies = asked.dump(uapi.SOCK_DIAG_BY_FAMILY, request)
        identities = [_ANSWER.unpack_from(body)[0] for body in bodies]
    return any(_ID.unpack(identity)[1:] == wanted for identity in identities)


def of_clients(clients: Iterable[str]) -> Iterator[ClientSocket]:
    """Yield the sockets whose peer is one of `clients`: addresses, networks, ``first-last`` ranges.

    Listening and closed sockets are left out. Raises OSError if the kernel refuses.
    """
    wanted = Ranges(clients)
    if not wanted.size:
        return
    networks = list(islice(wanted.networks(), _FEW + 1))
    with NetlinkSocket(uapi.NETLINK_SOCK_DIAG) as asked:
        for protocol in (IPPROTO_TCP, IPPROTO_UDP):
            request = _REQUEST.pack(AF_INET, protocol, 0, _STATES, bytes(_ID.size))
            if len(networks) <= _FEW:
                request += _any(uapi.INET_DIAG_BC_D_COND, [*map(_within, networks)])
            for body in _stream(asked, request):
                (identity,) = _ANSWER.unpack_from(body)
                local_port, remote_port, local, remote = _ID.unpack(identity)
                if remote in wanted:
                    yield ClientSocket(
                        protocol,
                        (IPv4Address(local), int.from_bytes(local_port, "big")),
                        (IPv4Address(remote), int.from_bytes(remote_port, "big")),
                        identity,
                    )


def destroy_clients(
    clients: Iterable[str],
    spared: Collection[IPv4Address],
    spare: Callable[[str], bool] = lambda _client: False,
) -> int:
    """End the sockets of `clients`; return their number.

    Sockets whose local address is in `spared` live on: with the router's own addresses there, a
    client keeps its connections to the router's services. So do the sockets of addresses for which
    `spare` is true, and the connections of the router's programs with each other over the loopback.
    Raises OSError if the kernel refuses, as one without CONFIG_INET_DIAG_DESTROY does (EOPNOTSUPP).
    """
    ended = 0
    with NetlinkSocket(uapi.NETLINK_SOCK_DIAG) as told:
        for found in of_clients(clients):
            local, remote = found.local[0], found.remote[0]
            if local.is_loopback or local in spared or spare(str(remote)):
                continue
            ended += _destroy(told, found.protocol, found.id)
    return ended


def destroy_callers(ports: Collection[int]) -> int:
    """End the TCP connections to this machine's own addresses at these ports; return their number.

    Connections of TPROXY listeners live on: their local address is another machine's. Raises
    OSError if the kernel refuses.
    """
    with NetlinkSocket(uapi.NETLINK_SOCK_DIAG) as asked:
        return sum(
            _destroy(asked, IPPROTO_TCP, _ANSWER.unpack_from(body)[0])
            for body in _at(asked, ports, _STATES)
        )


def callers(ports: Collection[int]) -> list[CallerConnection]:
    """Return the established TCP connections to this machine's own addresses at these ports,
    without those of TPROXY listeners. Raises OSError if the kernel refuses.
    """
    found = []
    with NetlinkSocket(uapi.NETLINK_SOCK_DIAG) as asked:
        for body in _at(asked, ports, _STATES & ~(1 << uapi.TCP_SYN_RECV), _WITH_INFO):
            if _is_closed(body):
                continue
            (identity,) = _ANSWER.unpack_from(body)
            local_port, remote_port, local, remote = _ID.unpack(identity)
            info = attributes(body, _MESSAGE_BYTES)[uapi.INET_DIAG_INFO]
            sent, received = _TRANSFERRED.unpack_from(info)
            found.append(
                CallerConnection(
                    (IPv4Address(local), int.from_bytes(local_port, "big")),
                    (IPv4Address(remote), int.from_bytes(remote_port, "big")),
                    sent,
                    received,
                    identity,
                )
            )
    return found


def destroy(connections: Iterable[ClientSocket | ResolverConnection | CallerConnection]) -> int:
    """End connections; return the number that had not ended by themselves. Raises OSError."""
    with NetlinkSocket(uapi.NETLINK_SOCK_DIAG) as asked:
        return sum(_destroy(asked, _protocol_of(each), each.id) for each in connections)


def _protocol_of(connection: ClientSocket | ResolverConnection | CallerConnection) -> int:
    return connection.protocol if isinstance(connection, ClientSocket) else IPPROTO_TCP


def count_by_client(own: Collection[IPv4Address]) -> Counter[tuple[int, bytes]]:
    """Return the number of flows that each client has open through TPROXY listeners: protocol and
    address (4 bytes in network order) -> TCP connections except those to resolvers, or UDP ports of
    the client that receive answers.

    `own`: this machine's addresses. 20,000 take 60 ms. Raises OSError if the kernel refuses.
    """
    spared = {address.packed for address in own}
    found: set[tuple[int, bytes, bytes, bytes, bytes]] = set()
    with NetlinkSocket(uapi.NETLINK_SOCK_DIAG) as asked:
        for protocol in (IPPROTO_TCP, IPPROTO_UDP):
            request = _REQUEST.pack(AF_INET, protocol, 0, _STATES, bytes(_ID.size))
            for body in _stream(asked, request):
                local_port, remote_port, local, remote = _ID.unpack(_ANSWER.unpack_from(body)[0])
                if local in spared or local[0] == _LOOPBACK or local_port == _DNS_PORT:
                    continue
                if _is_closed(body):
                    continue
                if protocol == IPPROTO_UDP:  # one port of a client may have many peers
                    local_port = local = b""
                found.add((protocol, remote, remote_port, local, local_port))
    return Counter((protocol, remote) for protocol, remote, *_ in found)


def askers(own: Collection[IPv4Address]) -> list[ResolverConnection]:
    """Return the established TCP connections to resolvers, port 53, through TPROXY listeners.
    `own`: this machine's addresses. Raises OSError if the kernel refuses.
    """
    spared = {address.packed for address in own}
    states = _STATES & ~(1 << uapi.TCP_SYN_RECV)
    request = _REQUEST.pack(AF_INET, IPPROTO_TCP, _WITH_INFO, states, bytes(_ID.size))
    condition = _CONDITION.pack(AF_INET, 0, int.from_bytes(_DNS_PORT, "big"), bytes(4))
    request += _any(uapi.INET_DIAG_BC_S_COND, [condition])
    found = []
    with NetlinkSocket(uapi.NETLINK_SOCK_DIAG) as asked:
        for body in asked.dump(uapi.SOCK_DIAG_BY_FAMILY, request):
            (identity,) = _ANSWER.unpack_from(body)
            local = _ID.unpack(identity)[2]
            if local in spared or local[0] == _LOOPBACK or _is_closed(body):
                continue
            info = attributes(body, _MESSAGE_BYTES)[uapi.INET_DIAG_INFO]
            sent_ms, received_ms = _SILENT.unpack_from(info)
            found.append(ResolverConnection(sent_ms / 1000, received_ms / 1000, identity))
    return found


def _at(
    asked: NetlinkSocket, ports: Collection[int], states: int, extensions: int = 0
) -> Iterator[bytes]:
    """Yield TCP sockets of this machine's own addresses at these ports."""
    request = _REQUEST.pack(AF_INET, IPPROTO_TCP, extensions, states, bytes(_ID.size))
    if len(ports) <= _FEW:
        conditions = [_CONDITION.pack(AF_INET, 0, port, bytes(4)) for port in ports]
        request += _any(uapi.INET_DIAG_BC_S_COND, conditions)
    own: dict[bytes, bool] = {}
    for body in list(asked.dump(uapi.SOCK_DIAG_BY_FAMILY, request)):
        port, _, local, _ = _ID.unpack(_ANSWER.unpack_from(body)[0])
        if int.from_bytes(port, "big") not in ports:
            continue
        if local not in own:
            own[local] = _is_own(local)
        if own[local]:
            yield body


def destroy_stalled(
    ports: Collection[int],
    is_meant: Callable[[IPv4Address, int], bool],
    uid: int,
    patience_s: float,
) -> int:
    """End a user's TCP connections to these remote ports that have retransmitted in vain and will
    not retransmit within `patience_s`; return their number.

    `is_meant` decides by remote address and port whether a connection is concerned. Raises OSError
    if the kernel refuses.
    """
    request = _REQUEST.pack(AF_INET, IPPROTO_TCP, 0, 1 << uapi.TCP_ESTABLISHED, bytes(_ID.size))
    if len(ports) <= _FEW:
        conditions = [_CONDITION.pack(AF_INET, 0, port, bytes(4)) for port in ports]
        request += _any(uapi.INET_DIAG_BC_D_COND, conditions)
    with NetlinkSocket(uapi.NETLINK_SOCK_DIAG) as asked:
        found = map(_TIMED.unpack_from, asked.stream(uapi.SOCK_DIAG_BY_FAMILY, request))
        stalled = [
            identity
            for timer, again, identity, left_ms, user in found
            # inet_diag reports this timer for every socket that waits for an acknowledgement.
            if timer == uapi.ICSK_TIME_RETRANS and again
            if left_ms > patience_s * 1000 and user == uid
        ]
        ended = 0
        for identity in stalled:
            _, port, _, remote = _ID.unpack(identity)
            if is_meant(IPv4Address(remote), int.from_bytes(port, "big")):
                ended += _destroy(asked, IPPROTO_TCP, identity)
    return ended


def _is_closed(body: bytes) -> bool:
    """True for a connection that only the kernel still has, and no program.

    The kernel sends the last packets of such a connection again for about 100 s if no answer comes
    (tcp_orphan_retries, ip-sysctl.rst). A connection that its program has not accepted yet has no
    inode either, but another state.
    """
    timer, *_ = _TIMED.unpack_from(body)
    if timer == _CLOSED:  # these have no tcp_info
        return True
    (inode,) = _INODE.unpack_from(body)
    return body[1] in _ENDING and inode == 0


def _is_own(address: bytes) -> bool:
    with socket(AF_INET, SOCK_DGRAM) as trial:
        try:
            trial.bind((inet_ntoa(address), 0))
        except OSError:
            return False
    return True


def _destroy(told: NetlinkSocket, protocol: int, identity: bytes) -> bool:
    """End a socket; return False if it ended by itself."""
    try:
        told.request(uapi.SOCK_DESTROY, _REQUEST.pack(AF_INET, protocol, 0, 0, identity))
    except NetlinkError as error:
        # ESTALE: another connection between the same addresses and ports has followed it.
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        return False
    return True


def _stream(asked: NetlinkSocket, request: bytes) -> Iterator[bytes]:
    try:
        yield from asked.stream(uapi.SOCK_DIAG_BY_FAMILY, request)
    except NetlinkError as error:
        if error.errno != errno.ENOENT:  # the kernel has no udp_diag
            raise


def _within(network: IPv4Network) -> bytes:
    return _CONDITION.pack(AF_INET, network.prefixlen, -1, network.network_address.packed)


def _any(code: int, conditions: Collection[bytes]) -> bytes:
    """Return the attribute with a program that holds for sockets whose local or remote end, as
    `code` says (INET_DIAG_BC_S_COND or INET_DIAG_BC_D_COND), meets one of `conditions`.

    It holds if it stops exactly at its end. Each condition that is met is followed by a jump there;
    a condition that is not met continues beyond that jump; the last one overshoots.
    """
    program = b""
    left = len(conditions) * (_STEP + _OPERATION.size) - _OPERATION.size
    for condition in conditions:
        left -= _STEP
        program += _OPERATION.pack(code, _STEP, _STEP + _OPERATION.size) + condition
        if left:
            program += _OPERATION.pack(uapi.INET_DIAG_BC_JMP, _OPERATION.size, left)
            left -= _OPERATION.size
    return attribute(uapi.INET_DIAG_REQ_BYTECODE, program)
