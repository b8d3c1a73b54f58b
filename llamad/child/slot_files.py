"""States of slots as files in one directory: numpy's archives, with a mark of the model that they belong to.

A state fits only the very model and library that it is of: with other weights of the same shape it would be taken, and
answers would be wrong without a word. The mark is made of the file's size, its beginning and its end, and of the
library's version. Archives carry check sums; what was damaged is refused.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import tempfile
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

from llamad.engine.orders import SlotState
from llamad.errors import LlamadError, NotFoundError, RequestError

NAME_BYTES_MAX = 255
_PART_BYTES = 1 << 20


class SlotFiles:
    """Saves and loads on the caller's thread, which may take seconds. `settings`: what else a state depends on."""

    def __init__(self, directory: Path, model: Path, settings: str) -> None:
        """Raises LlamadError (`bad-slot-save-path`) where there is no such directory."""
        if not directory.is_dir():
            raise LlamadError(
                f"cannot use slot-save-path {directory}: there is no such directory",
                kind="bad-slot-save-path",
            )
        self._directory = directory
        self._model = model
        self._settings = settings

    def save(self, name: str, state: SlotState) -> int:
        """The size of the file, which is there as a whole or not at all."""
        path = self._directory / checked_name(name)
        try:
            with tempfile.NamedTemporaryFile(dir=self._directory, prefix=".saving-", delete=False) as file:
                try:
                    np.savez(
                        file,
                        mark=np.array(self._mark),
                        tokens=np.array(state.tokens, np.int32),
                        n_exact=np.array(state.n_exact),
                        adapters=np.array(state.adapters, np.float64).reshape(-1, 2),
                        data=state.data,
                    )
                    size = file.tell()
                    os.replace(file.name, path)
                except BaseException:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            raise LlamadError(f"cannot save {name!r}: {error.strerror}", kind="slot-file") from error
        return size

    def load(self, name: str) -> tuple[SlotState, int]:
        """A state, and the size of its file. Raises RequestError for one that is none, or another model's."""
        try:
            with (self._directory / checked_name(name)).open("rb") as file:
                return self._read(name, file), file.seek(0, os.SEEK_END)
        except FileNotFoundError:
            raise NotFoundError(
                f"cannot restore {name!r}: there is no such file", kind="slot-file-not-found"
            ) from None
        except IsADirectoryError:
            raise _useless(name, "it is a directory") from None
        except OSError as error:
            raise LlamadError(f"cannot restore {name!r}: {error.strerror}", kind="slot-file") from error

    def _read(self, name: str, file: BinaryIO) -> SlotState:
        try:
            with np.load(file, allow_pickle=False) as archive:
                if str(archive["mark"]) != self._mark:
                    raise _useless(
                        name, "it is of another model, or was saved with other settings or another version"
                    )
                return SlotState(
                    tuple(archive["tokens"].tolist()),
                    int(archive["n_exact"]),
                    tuple((int(id), float(scale)) for id, scale in archive["adapters"]),
                    archive["data"],
                )
        except LlamadError:
            raise
        except Exception as error:
            # A damaged archive shows itself in many ways: a place before the file's beginning, an unknown compression.
            raise _useless(name, "it is no whole file of a slot") from error

    @cached_property
    def _mark(self) -> str:
        digest = hashlib.sha256(self._settings.encode())
        digest.update(importlib.metadata.version("llama-cpp-python").encode())
        with self._model.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            for place in (0, max(0, size - _PART_BYTES)):
                file.seek(place)
                digest.update(file.read(_PART_BYTES))
        digest.update(str(size).encode())
        return digest.hexdigest()


def checked_name(name: str) -> str:
    """A file's name that is one: nothing that leads elsewhere. RequestError otherwise."""
    if not name or len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        raise _bad_name(name, f"it must have 1 to {NAME_BYTES_MAX} bytes")
    if name.startswith(".") or not name.isprintable() or any(letter in "/\\:" for letter in name):
        raise _bad_name(
            name, "it must be a plain name: no separators, no colon, no dot in front, nothing unprintable"
        )
    return name


def _bad_name(name: str, reason: str) -> RequestError:
    shown = name[:40].encode(errors="replace").decode()
    return RequestError(
        f"cannot use 'filename' {shown!r}: {reason}", kind="bad-field", details={"param": "filename"}
    )


def _useless(name: str, reason: str) -> RequestError:
    return RequestError(f"cannot restore {name!r}: {reason}", kind="slot-state")
