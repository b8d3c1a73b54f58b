"""Prints a TCP port that is free on the loopback now: the wanted one, else one that the kernel chooses."""

from __future__ import annotations

import socket
import sys


def free_port(wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("cannot find a free port on 127.0.0.1")


if __name__ == "__main__":
    print(free_port(int(sys.argv[1])))
