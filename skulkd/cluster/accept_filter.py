"""The kernel's part of the accept gate: a socket filter, and the list of connections that wait.

Linux only; needs no privileges. The filter is a classic BPF program on a listening TCP socket. Must
not decide which connections are let in.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

_SO_ATTACH_FILTER, _SO_DETACH_FILTER, _SO_MEMINFO = 26, 27, 55
_MEMINFO = struct.Struct("9I")
_NET = 0xFFF00000  # the offset at which a filter sees the IP header
_LOAD_BYTE, _LOAD_HALF, _LOAD_WORD, _LOAD_MEMORY, _STORE = 0x30, 0x28, 0x20, 0x60, 0x02
_AND, _JUMP, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x54, 0x05, 0x15, 0x45, 0x06
_SYN, _RST, _ACK = 0x02, 0x04, 0x10
_PASS, _DROP = 0xFFFFFFFF, 0

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, _ERROR, _DONE = 20, 0x301, 2, 3
_TCP_SYN_RECV = 3
_V4_IN_V6 = bytes(10) + b"\xff\xff"


class Instruction(NamedTuple):
    """One instruction of classic BPF; jumps are relative to the next one."""

    code: int
    if_true: int
    if_false: int
    value: int


class Pending(NamedTuple):
    """The far end of a connection that was not accepted yet: address as in the IP header, port."""

    host: bytes
    port: int


Block = list[Instruction]


def program(admitted: Iterable[Pending], refused: Collection[bytes]) -> Block:
    """Pass what admitted connections send, and SYNs of hosts that are not refused; drop the rest.

    An accepted connection inherits the filter that it was admitted by, which never stops it. Pure.
    """
    ports: dict[bytes, list[int]] = defaultdict(list)
    for one in admitted:
        ports[one.host].append(one.port)
    for_data = {host: _only_from(numbers) for host, numbers in ports.items()}
    for_syn = {host: [_return(_DROP)] for host in refused}
    data, syn = _by_host(for_data, _DROP), _by_host(for_syn, _PASS)
    return [
        Instruction(_LOAD_BYTE, 0, 0, 13),
        Instruction(_JUMP_SET, 0, 1, _RST),
        _return(_PASS),
        Instruction(_AND, 0, 0, _SYN | _ACK),
        Instruction(_JUMP_EQUAL, 0, 1, _SYN),
        Instruction(_JUMP, 0, 0, len(data)),
        *data,
        *syn,
    ]


def attach(sock: socket.socket, instructions: Sequence[Instruction]) -> None:
    """Replaces the filter that the socket has. Raises OSError."""
    code = b"".join(struct.pack("HBBI", *one) for one in instructions)
    memory = ctypes.create_string_buffer(code)
    description = struct.pack("HL", len(instructions), ctypes.addressof(memory))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, description)


def detach(sock: socket.socket) -> None:
    """Raises OSError, also when there is no filter."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def dropped(sock: socket.socket) -> int:
    """How many packets the socket has dropped: it changes when somebody waits. Raises OSError."""
    found = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    return int(_MEMINFO.unpack(found)[8])


def pending_connections(family: socket.AddressFamily, port: int) -> list[Pending]:
    """Connections to this port of this machine that nobody could accept yet. Raises OSError."""
    body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 1 << _TCP_SYN_RECV)
    body += struct.pack("!HH", port, 0) + bytes(36) + b"\xff" * 8
    found: list[Pending] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        header = struct.pack("=IHHII", 16 + len(body), _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, 1, 0)
        kernel.send(header + body)
        while _read_messages(kernel.recv(1 << 16), port, found):
            continue
    return found


def _read_messages(answer: bytes, port: int, found: list[Pending]) -> bool:
    """Add what the kernel lists; False after the last message. Raises OSError."""
    while answer:
        length, kind = struct.unpack_from("=IH", answer)
        if kind == _DONE:
            return False
        if kind == _ERROR:
            raise OSError(-struct.unpack_from("=i", answer, 16)[0], "connections cannot be listed")
        family = answer[16]
        own_port, port_there = struct.unpack_from("!HH", answer, 20)
        if own_port == port:
            host = answer[40:56] if family == socket.AF_INET6 else answer[40:44]
            found.append(Pending(host.removeprefix(_V4_IN_V6), port_there))
        answer = answer[(length + 3) & ~3 :]
    return True


def _only_from(ports: Sequence[int]) -> Block:
    """Pass packets from these ports, drop others."""
    last = len(ports)
    tests = [Instruction(_JUMP_EQUAL, last - i, 0, port) for i, port in enumerate(ports)]
    return [Instruction(_LOAD_HALF, 0, 0, 0), *tests, _return(_DROP), _return(_PASS)]


def _by_host(blocks: Mapping[bytes, Block], otherwise: int) -> Block:
    """Run the block of the host that sent the packet; each block ends with a return."""
    four = [Instruction(_LOAD_WORD, 0, 0, _NET + 12)]
    six: Block = []
    for i in range(4):
        six += [Instruction(_LOAD_WORD, 0, 0, _NET + 8 + 4 * i), Instruction(_STORE, 0, 0, i)]
    for host, block in blocks.items():
        words = struct.unpack(f"!{len(host) // 4}I", host)
        if len(words) == 1:
            four += [Instruction(_JUMP_EQUAL, 0, len(block), words[0]), *block]
            continue
        for i, word in enumerate(words):
            skipped = len(block) + 2 * (3 - i)
            six += [
                Instruction(_LOAD_MEMORY, 0, 0, i),
                Instruction(_JUMP_EQUAL, 0, skipped, word),
            ]
        six += block
    four.append(_return(otherwise))
    six.append(_return(otherwise))
    return [
        Instruction(_LOAD_BYTE, 0, 0, _NET),
        Instruction(_AND, 0, 0, 0xF0),
        Instruction(_JUMP_EQUAL, 1, 0, 0x40),
        Instruction(_JUMP, 0, 0, len(four)),
        *four,
        *six,
    ]


def _return(value: int) -> Instruction:
    return Instruction(_RETURN, 0, 0, value)
