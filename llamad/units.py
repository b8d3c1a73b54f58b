"""Bytes and durations, as people write and read them."""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b?|b)?", re.IGNORECASE)
_SIZE_FACTORS = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.IGNORECASE)
_DURATION_FACTORS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def format_bytes(count: float) -> str:
    """`6.1 GiB`, `512 KiB`, `17 B`."""
    for name, size in (("TiB", 1024 * GIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(count) >= size:
            return f"{count / size:.1f} {name}"
    return f"{int(count)} B"


def parse_bytes(text: str) -> int:
    """Bytes of `128M`, `1.5 GiB`, `4096`. Raises ValueError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"cannot read {text!r} as a size: write for example 512M or 2GiB")
    unit = (match.group(2) or "").lower()
    return int(float(match.group(1)) * _SIZE_FACTORS[unit[:1]])


def format_duration(seconds: float) -> str:
    """`340 ms`, `4.2 s`, `3 m 05 s`, `2 h 07 m`, `3 d 04 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def parse_duration(text: str) -> float:
    """Seconds of `30`, `1.5s`, `500ms`, `10m`, `2h`. Raises ValueError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise ValueError(f"cannot read {text!r} as a time: write for example 30, 30s, 10m or 2h")
    return float(match.group(1)) * _DURATION_FACTORS[(match.group(2) or "s").lower()]
