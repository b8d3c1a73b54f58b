"""The child's end of the pipe to its parent.

A thread of its own reads the commands, because the role may be deep in a C call when the parent goes away. End of file
means that nobody is there any more: the role is asked to finish, and after EOF_GRACE_S the process ends from this very
thread, whatever the others do.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable

from llamad.wire.child import (
    LINE_BYTES_MAX,
    Command,
    Exit,
    Report,
    Sleep,
    Start,
    Stats,
    Stop,
    Wake,
    encode,
    parse_command,
)
from llamad.wire.lines import LineBuffer

EOF_GRACE_S = 0.5
ORPHAN_STATUS = 1
_READ_BYTES = 64 * 1024


class Link:
    """Commands in from the descriptor `commands`, reports out to the descriptor `reports`. `die` ends the process."""

    def __init__(self, commands: int, reports: int, die: Callable[[int], object] = os._exit) -> None:
        self._commands = commands
        self._reports = reports
        self._die = die
        self._lines = LineBuffer(LINE_BYTES_MAX)
        self._unread: deque[bytes] = deque()
        self._send_lock = threading.Lock()
        self._finish_lock = threading.Lock()
        self._finish: Callable[[], object] | None = None
        self._nap: Callable[[Sleep | Wake], object] | None = None
        self._stop: Callable[[int], object] | None = None
        self._asked = False

    def start(self) -> Start | None:
        """Wait for the first command. None: the parent has nothing for us to do. Raises ProtocolError."""
        while True:
            command = self._next()
            if isinstance(command, Start):
                return command
            if command is None or isinstance(command, Exit):
                return None

    def listen(self) -> None:
        """Begin to read commands, on a thread of the link's own."""
        threading.Thread(target=self._listen, name="link", daemon=True).start()

    def on_finish(self, finish: Callable[[], object]) -> None:
        """Call `finish`, on the link's thread, when the parent says exit or is gone; at once if it has been so."""
        with self._finish_lock:
            self._finish = finish
            asked = self._asked
        if asked:
            finish()

    def on_nap(self, nap: Callable[[Sleep | Wake], object]) -> None:
        """Call `nap`, on the link's thread, for each Sleep and Wake from now on. Roles that do not sleep ignore them."""
        self._nap = nap

    def on_stop(self, stop: Callable[[int], object]) -> None:
        """Call `stop`, on the link's thread, with the ticket of each conversation that is to end."""
        self._stop = stop

    @property
    def asked_to_finish(self) -> bool:
        """Whether the parent has said exit, or is gone."""
        return self._asked

    def send(self, report: Report) -> None:
        """Send one line, whole, from any thread.

        Statistics are dropped while the parent does not read: there will be newer ones. A parent that is gone is no
        error here: the link's thread sees it too, and acts on it.
        """
        line = encode(report)
        with self._send_lock:
            if isinstance(report, Stats) and not self._has_room():
                return
            try:
                _write_all(self._reports, line)
            except BrokenPipeError:
                pass

    def _has_room(self) -> bool:
        """A pipe that polls as writable takes a line of up to a page without blocking (pipe(7))."""
        poll = select.poll()
        poll.register(self._reports, select.POLLOUT)
        return any(event & select.POLLOUT for _, event in poll.poll(0))

    def _listen(self) -> None:
        try:
            while (command := self._next()) is not None:
                if isinstance(command, Exit):
                    self._ask_finish()
                elif isinstance(command, Stop) and self._stop:
                    self._stop(command.ticket)
                elif isinstance(command, Sleep | Wake) and self._nap:
                    self._nap(command)
            self._ask_finish()
        finally:
            # Whatever went wrong above: without this thread nobody would notice that the parent is gone.
            threading.Event().wait(EOF_GRACE_S)
            self._die(ORPHAN_STATUS)

    def _ask_finish(self) -> None:
        with self._finish_lock:
            first, self._asked = not self._asked, True
            finish = self._finish
        if first and finish:
            finish()

    def _next(self) -> Command | None:
        """The next command, None at the end of file."""
        while True:
            while self._unread:
                command = parse_command(self._unread.popleft())
                if command is not None:
                    return command
            data = os.read(self._commands, _READ_BYTES)
            if not data:
                return None
            self._unread.extend(self._lines.feed(data))


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
