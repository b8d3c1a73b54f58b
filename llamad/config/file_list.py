"""A kind of option value: several files, perhaps each with a number behind it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from llamad.config.settings import OptionValue

FILES_MAX = 64


@dataclass(frozen=True, slots=True)
class FileList:
    """Names of files with commas between, as a row of CSV: one with a comma in it stands in quotes.

    `scaled`: behind each a colon and a number, `FILE:0.5`.
    """

    hint: str = "FILE,…"
    scaled: bool = False

    def parse(self, text: str) -> tuple[str, ...]:
        if "\0" in text:
            raise ValueError("its value has a NUL character in it")
        try:
            items = tuple(item.strip() for item in next(csv.reader([text], skipinitialspace=True), []))
        except csv.Error as error:
            raise ValueError(f"{text[:40]!r} is no list: {error}") from None
        if "" in items:
            raise ValueError(f"{text!r} has an empty name of a file")
        if len(items) > FILES_MAX:
            raise ValueError(f"{len(items)} files are too many: at most {FILES_MAX}")
        for item in items if self.scaled else ():
            split_scale(item)
        return items

    def render(self, value: OptionValue) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(value if isinstance(value, tuple) else (value,))
        return text.getvalue()

    def paths(self, value: Sequence[str]) -> list[str]:
        """The names of the files alone."""
        return [split_scale(item)[0] for item in value] if self.scaled else list(value)

    def with_paths(self, value: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
        """The same with other names."""
        if not self.scaled:
            return tuple(paths)
        scales = [item.rpartition(":")[2] for item in value]
        return tuple(f"{path}:{scale}" for path, scale in zip(paths, scales, strict=True))


def split_scale(item: str) -> tuple[str, float]:
    """`FILE:0.5` taken apart. ValueError tells what is wrong."""
    path, colon, text = item.rpartition(":")
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not path or not colon or not math.isfinite(scale):
        raise ValueError(f"{item!r} is not FILE:SCALE, for example adapter.gguf:0.5")
    return path, scale
