"""A device with limited memory: `server.py RPC_LIBRARY LIBGGML TOTAL_BYTES`, in a process of its own.

llama.cpp's RPC server over the CPU backend. What the CPU device tells of its memory, and its allocation, are replaced in
this process (slots of ggml's tables of functions): the buffers of all clients together never exceed what there is, and
what is free is told live. So to its clients it is a GPU whose memory ends where the test wants it to end.

llama.cpp's server has one client at a time. A front on one port therefore passes each connection to a server of its own;
they share the device. A client that dies is a connection that ends, and its buffers are freed.

stdout: JSON lines. First `{"event": "listening", "port"}`, then one for each change, in the order of the changes:
    {"event": "alloc" | "free" | "refuse" | "set" | "told", "bytes", "held", "occupied", "hidden", "total"}
stdin: `occupy BYTES`: so much is held by somebody else, and told as not free;
       `hide BYTES`: so much is told as free, but cannot be had (fragments);
       `tell NUMBER`: answered by `told`, with the number as `bytes`, when all that happened before has been said.
The process ends at the end of stdin.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import threading
import time
from typing import Any, TextIO

HOST = "127.0.0.1"
FIRST_PORT = 20_000
START_WITHIN_S = 10.0
CHUNK_BYTES = 1 << 20
_pointer, _size = ctypes.c_void_p, ctypes.c_size_t
_GetMemory = ctypes.CFUNCTYPE(None, _pointer, ctypes.POINTER(_size), ctypes.POINTER(_size))
_Alloc = ctypes.CFUNCTYPE(_pointer, _pointer, _size)
_Free = ctypes.CFUNCTYPE(None, _pointer)
# Places in ggml-backend-impl.h: the functions of a device, of a buffer type and of a buffer come first in each.
_DEVICE_GET_MEMORY, _TYPE_ALLOC, _BUFFER_FREE = 2, 1, 0


class Account:
    """Who has how much. Written to from llama.cpp's threads."""

    def __init__(self, total: int, out: TextIO) -> None:
        self._lock = threading.Lock()
        self._total = total
        self._sizes: dict[int, int] = {}
        self._numbers = {"held": 0, "occupied": 0, "hidden": 0}
        self._out = out

    def free_bytes(self) -> int:
        with self._lock:
            return max(0, self._total - self._numbers["held"] - self._numbers["occupied"])

    @property
    def total_bytes(self) -> int:
        return self._total

    def take(self, size: int) -> bool:
        """Whether there is so much; it is the caller's then, who says for which buffer with `name`."""
        with self._lock:
            granted = sum(self._numbers.values()) + size <= self._total
            self._numbers["held"] += size if granted else 0
            self._tell("alloc" if granted else "refuse", size)
            return granted

    def name(self, buffer: int, size: int) -> None:
        with self._lock:
            self._sizes[buffer] = size

    def give(self, buffer: int) -> None:
        with self._lock:
            size = self._sizes.pop(buffer, 0)
            self._numbers["held"] -= size
            self._tell("free", size)

    def set(self, field: str, size: int) -> None:
        with self._lock:
            self._numbers[field] = size
            self._tell("set", size)

    def tell(self, number: int) -> None:
        with self._lock:
            self._tell("told", number)

    def say(self, document: dict[str, Any]) -> None:
        print(json.dumps(document), file=self._out, flush=True)

    def _tell(self, event: str, size: int) -> None:
        self.say({"event": event, "bytes": size, **self._numbers, "total": self._total})


class Limit:
    """The CPU device of this process with the account's memory. Keep it: ggml calls into it."""

    def __init__(self, account: Account, registry: ctypes.CDLL) -> None:
        base = ctypes.CDLL("libggml-base.so.0")
        registry.ggml_backend_dev_by_type.restype = _pointer
        base.ggml_backend_dev_buffer_type.restype = _pointer
        base.ggml_backend_dev_buffer_type.argtypes = [_pointer]
        self.device = registry.ggml_backend_dev_by_type(0)
        buffer_type = base.ggml_backend_dev_buffer_type(self.device)
        self._account = account
        self._real_alloc = _Alloc(_slot(buffer_type, _TYPE_ALLOC).value or 0)
        self._real_free: Any = None
        self._callbacks = _GetMemory(self._get_memory), _Alloc(self._alloc), _Free(self._free)
        _replace(self.device, _DEVICE_GET_MEMORY, self._callbacks[0])
        _replace(buffer_type, _TYPE_ALLOC, self._callbacks[1])

    def _get_memory(self, _: int, free: Any, total: Any) -> None:
        free[0], total[0] = self._account.free_bytes(), self._account.total_bytes

    def _alloc(self, buffer_type: int, size: int) -> int | None:
        if not self._account.take(size):
            return None
        buffer: int | None = self._real_alloc(buffer_type, size)
        assert buffer, "the machine itself has no memory left"
        self._account.name(buffer, size)
        if self._real_free is None:
            self._real_free = _Free(_slot(buffer, _BUFFER_FREE).value or 0)
        _replace(buffer, _BUFFER_FREE, self._callbacks[2])
        return buffer

    def _free(self, buffer: int) -> None:
        # The name first: the address may be another buffer's as soon as this one is gone.
        self._account.give(buffer)
        self._real_free(buffer)


class Servers:
    """llama.cpp's servers, each for one connection at a time; as many as there ever were connections at once.

    They take a fixed port each, and so have a loopback address of this process's own, where nobody else listens.
    """

    def __init__(self, library: ctypes.CDLL, device: int) -> None:
        self._start = library.ggml_backend_rpc_start_server
        self._start.restype = None
        self._start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, _size, _size, _pointer]
        self._devices = (_pointer * 1)(device)
        self._address = _own_address(os.getpid())
        self._count = 0
        self._idle: list[int] = []
        self._lock = threading.Lock()

    def connect(self) -> tuple[socket.socket, int]:
        """A connection to a server that has no other, and its port for `done`."""
        with self._lock:
            port = self._idle.pop() if self._idle else self._new()
        deadline = time.monotonic() + START_WITHIN_S
        while True:
            try:
                return socket.create_connection((self._address, port)), port
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def done(self, port: int) -> None:
        with self._lock:
            self._idle.append(port)

    def _new(self) -> int:
        port = FIRST_PORT + self._count
        self._count += 1
        endpoint = f"{self._address}:{port}".encode()
        arguments = (endpoint, None, 1, 1, self._devices)
        threading.Thread(target=self._start, args=arguments, daemon=True).start()
        return port


def serve(client: socket.socket, servers: Servers) -> None:
    server, port = servers.connect()
    with client, server:
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=pump, args=(server, client), daemon=True)
        back.start()
        pump(client, server)
        back.join()
    servers.done(port)


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until either end is gone, then let the other one know."""
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    try:
        while size := source.recv_into(buffer):
            sink.sendall(view[:size])
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def accept(listener: socket.socket, servers: Servers) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, servers), daemon=True).start()


def _own_address(pid: int) -> str:
    return f"127.{1 + pid // 65536 % 250}.{pid // 256 % 256}.{pid % 256}"


def _slot(table: int, index: int) -> ctypes.c_void_p:
    return _pointer.from_address(table + index * ctypes.sizeof(_pointer))


def _replace(table: int, index: int, function: Any) -> None:
    _slot(table, index).value = ctypes.cast(function, _pointer).value


def main(rpc_library: str, libggml: str, total: int) -> None:
    # llama.cpp prints to stdout, too: that is sent to stderr, and the lines have a descriptor of their own.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    account = Account(total, out)
    limit = Limit(account, ctypes.CDLL(libggml))
    servers = Servers(ctypes.CDLL(rpc_library), limit.device)
    listener = socket.create_server((HOST, 0))
    threading.Thread(target=accept, args=(listener, servers), daemon=True).start()
    account.say({"event": "listening", "port": listener.getsockname()[1]})
    for line in sys.stdin:
        verb, number = line.split()
        if verb == "tell":
            account.tell(int(number))
        else:
            account.set({"occupy": "occupied", "hide": "hidden"}[verb], int(number))
    # Threads are inside llama.cpp: there is nothing to tidy up for them.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
