"""The machine's own memory: how much there is for us, how much of it is free, and what our processes count for.

What the kernel calls available (`MemAvailable`) leaves out what could only be had by swapping: anonymous and shared
memory, locked pages, the kernel's own. Pages of files count as available, whoever has mapped them, because they can be
dropped and read again. So a process is answerable for

    counted = RssAnon + RssShmem + its locked pages of files

and for no more: mapped weights are in nobody's use, neither ours nor others'. They are on the books all the same, as
part of what an instance holds, because a model whose pages are dropped under it crawls.

A control group may allow less than the machine has. Each level of ours with a limit is asked; there, too, pages of
files are free. The smallest total and the smallest free of all levels and the machine count; the two may come from
different ones, and what is then missing between them is in the hands of others.

Two things are counted for others though they are ours, both on the safe side: descendants that have cut themselves
off from their parent, and host memory that a GPU driver has pinned for a process.

All of this is read from proc and cgroup files, which do not wait for any disk. See proc(5), cgroups(7), and the
kernel's admin-guide/cgroup-v2 and cgroup-v1/memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

LEVELS_MAX = 64
PROCESSES_MAX = 256
"""Of one child and its descendants that are looked at."""
FILE_BYTES_MAX = 1 << 16
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Use:
    """Bytes of one process and its descendants. `counted`: see above; `resident`: all that is in memory for them."""

    counted: int = 0
    resident: int = 0

    def __add__(self, other: Use) -> Use:
        return Use(self.counted + other.counted, self.resident + other.resident)


@dataclass(frozen=True, slots=True)
class Level:
    """One control group that our processes are in. The names of its files differ between the two versions."""

    directory: str
    limits: tuple[str, ...]
    used: str
    droppable: tuple[str, ...]


class HostMemory:
    """`root` is where proc is, and the mounts that it names; tests have their own."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._levels = tuple(self._find_levels())

    def read(self) -> tuple[int, int]:
        """Bytes: (total, free). Raises OSError or ValueError where the kernel does not say."""
        machine = dict(_pairs(self._text("/proc/meminfo")))
        total = _kib(machine["MemTotal"])
        free = _kib(machine["MemAvailable"])
        whole = total
        for level in self._levels:
            limit = self._limit(level)
            if limit is not None and limit < whole:
                total, free = min(total, limit), min(free, max(0, limit - self._used(level)))
        return total, free

    def used_by(self, pid: int) -> Use:
        """What this process and its descendants use; nothing for one that is gone."""
        use = Use()
        for number in self._tree(pid):
            use += self._use(number)
        return use

    # ---- processes

    def _tree(self, pid: int) -> list[int]:
        found = [pid]
        for number in found:
            found += self._children(number)[: PROCESSES_MAX - len(found)]
        return found

    def _children(self, pid: int) -> list[int]:
        """Each thread has children of its own. None where the kernel was built without that list."""
        tasks = f"{self._root}/proc/{pid}/task"
        try:
            threads = os.listdir(tasks)
        except OSError:
            return []
        children: list[int] = []
        for thread in threads:
            try:
                children += [int(word) for word in _read(f"{tasks}/{thread}/children").split()]
            except OSError:
                continue
        return children

    def _use(self, pid: int) -> Use:
        try:
            fields = dict(_pairs(self._text(f"/proc/{pid}/status")))
        except OSError:
            return Use()
        # A zombie has no memory, and none of these lines.
        anonymous, shared, of_files, locked = (
            _kib(fields.get(name, "0")) for name in ("RssAnon", "RssShmem", "RssFile", "VmLck")
        )
        # More is locked than there is of files: then it is anonymous memory that is locked, and counted already.
        locked_files = locked if locked <= of_files else 0
        return Use(anonymous + shared + locked_files, anonymous + shared + of_files)

    # ---- control groups

    def _find_levels(self) -> Iterator[Level]:
        """Every level that we are in, of both versions: either may have the memory controller."""
        try:
            paths = dict(_own_groups(self._text("/proc/self/cgroup")))
            mounts = list(_mounts(self._text("/proc/self/mountinfo")))
        except (OSError, ValueError):
            return
        for version, root, point in mounts:
            path = paths.get(version)
            if path is None:
                continue
            inside = path.removeprefix(root.rstrip("/")) if path.startswith(root) else ""
            for directory in _upwards(self._root + point, inside):
                yield _level(version, directory)

    def _limit(self, level: Level) -> int | None:
        found = []
        for name in level.limits:
            try:
                word = _read(f"{level.directory}/{name}").strip()
            except OSError:
                continue
            if word.isdecimal():
                found.append(int(word))
        return min(found, default=None)

    def _used(self, level: Level) -> int:
        used = int(_read(f"{level.directory}/{level.used}"))
        counts = dict(line.split() for line in _read(f"{level.directory}/memory.stat").splitlines())
        return max(0, used - sum(int(counts.get(name, 0)) for name in level.droppable))

    def _text(self, path: str) -> str:
        return _read(self._root + path)


def _level(version: int, directory: str) -> Level:
    limits: tuple[str, ...] = ("memory.limit_in_bytes",)
    droppable: tuple[str, ...] = ("total_active_file", "total_inactive_file")
    if version == 1:
        return Level(directory, limits, "memory.usage_in_bytes", droppable)
    limits, droppable = ("memory.max", "memory.high"), ("active_file", "inactive_file", "slab_reclaimable")
    return Level(directory, limits, "memory.current", droppable)


def _own_groups(text: str) -> Iterator[tuple[int, str]]:
    """`4:memory:/a/b` is of version 1, `0::/a/b` of version 2."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield 2, path
        elif "memory" in controllers.split(","):
            yield 1, path


def _mounts(text: str) -> Iterator[tuple[int, str, str]]:
    """(version, root, mount point) of each mounted hierarchy that may have the memory controller."""
    for line in text.splitlines():
        mount, _, system = line.partition(" - ")
        root, point = (_ESCAPE.sub(lambda m: chr(int(m[1], 8)), word) for word in mount.split()[3:5])
        kind, *options = system.split()
        if kind == "cgroup2":
            yield 2, root, point
        elif kind == "cgroup" and "memory" in options[-1].split(","):
            yield 1, root, point


def _upwards(top: str, inside: str) -> list[str]:
    """`top/a/b`, `top/a`, `top`."""
    parts = [part for part in inside.split("/") if part and part != ".."][:LEVELS_MAX]
    return ["/".join([top, *parts[:count]]) for count in range(len(parts), -1, -1)]


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, found, value = line.partition(":")
        if found:
            yield name, value


def _kib(value: str) -> int:
    """Bytes of `  1234 kB`."""
    return int(value.split()[0]) * 1024


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(FILE_BYTES_MAX).decode("utf-8", "replace")
