"""Asks one question and prints the answer as it streams in: `stream_chat.py [WAIT] URL MODEL QUESTION`.

With `--wait-for-pid PID --admin-socket PATH` a server that is still starting is waited for as long as that process
lives. Standard library only, so it also shows what the protocol looks like: one POST, then `data: {json}` lines until `data: [DONE]`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import IO

START_S = 60.0
ANSWER_S = 300.0


def wait_until_ready(admin_socket: str, pid: int) -> None:
    """Returns when the daemon says it is running, which its public port is by then. Raises SystemExit if the process ends or `START_S` pass.

    Not `/health` of the public port: with the port taken somebody else would answer it.
    """
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        try:
            os.kill(pid, 0)
            if daemon_state(admin_socket) == "running":
                return
        except ProcessLookupError:
            raise SystemExit("cannot reach the server: it has ended") from None
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.1)
    raise SystemExit(f"cannot reach a ready server at {admin_socket} within {START_S:.0f} s")


def daemon_state(admin_socket: str) -> str:
    """What `GET /status` on the daemon's own socket says. Raises OSError or HTTPException."""
    connection = http.client.HTTPConnection("llamad", timeout=2)
    with socket.socket(socket.AF_UNIX) as connection.sock:
        connection.sock.settimeout(2)
        connection.sock.connect(admin_socket)
        connection.request("GET", "/status")
        return str(json.loads(connection.getresponse().read())["daemon"]["state"])


def chat(url: str, model: str, question: str) -> Iterator[str]:
    """The pieces of the answer. Raises SystemExit with the server's message if there is none."""
    body = {"model": model, "stream": True, "max_tokens": 128, "temperature": 0, "seed": 1}
    body["messages"] = [{"role": "user", "content": question}]
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            yield from _pieces(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"cannot chat: HTTP {error.code} {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise SystemExit(f"cannot chat: {error}") from error


def _pieces(answer: IO[bytes]) -> Iterator[str]:
    for line in answer:
        data = line.decode().strip().removeprefix("data: ")
        if data == "[DONE]":
            return
        if data and not data.startswith(":"):
            event = json.loads(data)
            if "error" in event:
                raise SystemExit(f"cannot finish the answer: {event['error']['message']}")
            for choice in event["choices"]:
                yield choice["delta"].get("content") or ""
    raise SystemExit("cannot finish the answer: the stream broke off")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait-for-pid", type=int)
    parser.add_argument("--admin-socket")
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("question")
    arguments = parser.parse_args()
    if arguments.wait_for_pid:
        wait_until_ready(arguments.admin_socket, arguments.wait_for_pid)
    letters = 0
    for piece in chat(arguments.url, arguments.model, arguments.question):
        letters += len(piece)
        print(piece, end="", flush=True)
    print()
    return 0 if letters else 1


if __name__ == "__main__":
    sys.exit(main())
