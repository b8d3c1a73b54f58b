"""What a model takes on each device. Pure.

The yardstick, for predictions and for what really happened alike:

* `weights`, `kv`, `compute` are llama.cpp's own account of its buffers: what is allocated, touched yet or not. Weights
  that are mapped count as the range of the file that is mapped for the host, gaps between its tensors included.
* `overhead` on the host is the anonymous memory (RssAnon, proc(5)) of the process outside these buffers: interpreter,
  libraries' data, vocabulary, graphs. Pages of libraries' files belong to the page cache and are not counted.
* `overhead` on any other device is what its runtime holds for the process as soon as it is in use.
* `adapters` are the weights of LoRA adapters; what they add to computations is in `compute`.
* `draft` is what a draft model takes in all three ways.
* `projector` is what one would take; the engine loads none yet.
* `prompts` is what states of prompts may take of the host's memory (`cache-ram`): a promise, all of it from the start.
* `rules` is what the vocabulary takes once it is prepared for schemas, grammars and tools: a promise, too.

Devices are named as ggml names them; whatever is in the machine's own memory is `host`, under whatever name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace

HOST = "host"


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes on one device, by purpose."""

    weights: int = 0
    kv: int = 0
    compute: int = 0
    projector: int = 0
    draft: int = 0
    adapters: int = 0
    prompts: int = 0
    rules: int = 0
    overhead: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))

    def __add__(self, other: Share) -> Share:
        return Share(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Share)))

    def to_document(self) -> dict[str, int]:
        """The fields and their `total`."""
        return {**asdict(self), "total": self.total}


Bytes = Mapping[str, Share]
"""By device. A device that is not in it holds nothing."""


@dataclass(frozen=True, slots=True)
class Device:
    """A place for weights and caches. `kind`: `host`, `gpu` or `igpu`; sizes as the device itself says, now."""

    name: str
    description: str
    kind: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """All buffers of one buffer type, in bytes.

    `in_place`: the CPU works on it as it is, so that weights in it may be mapped; `mapped`: they are.
    """

    device: str
    in_place: bool = True
    mapped: bool = False
    weights: int = 0
    kv: int = 0
    compute: int = 0


def by_device(buffers: Iterable[Buffer]) -> dict[str, Share]:
    """Buffers summed up; the host is always there."""
    shares = {HOST: Share()}
    for buffer in buffers:
        held = shares.get(buffer.device, Share())
        shares[buffer.device] = held + Share(buffer.weights, buffer.kv, buffer.compute)
    return shares


def joined(left: Bytes, right: Bytes) -> dict[str, Share]:
    """Both together."""
    return {name: left.get(name, Share()) + right.get(name, Share()) for name in {**left, **right}}


def as_draft(shares: Bytes) -> dict[str, Share]:
    """What a model takes, as a draft model for another one."""
    return {name: Share(draft=share.total) for name, share in shares.items()}


def with_overhead(shares: Bytes, overhead: Mapping[str, int]) -> dict[str, Share]:
    """`shares`, with these bytes of overhead where there is anything at all."""
    return {name: replace(share, overhead=overhead.get(name, 0)) for name, share in shares.items()}


def anonymous_bytes(buffers: Iterable[Buffer]) -> int:
    """How much of a process's anonymous memory is in these buffers, once it has begun to work.

    Compute buffers are left out: little of them is touched before the first long prompt.
    """
    return sum(
        buffer.kv + (0 if buffer.mapped else buffer.weights) for buffer in buffers if buffer.device == HOST
    )


def totals(shares: Bytes) -> dict[str, int]:
    """Bytes by device."""
    return {name: share.total for name, share in shares.items()}


def to_document(shares: Bytes) -> dict[str, dict[str, int]]:
    """As reports carry it: `{DEVICE: {"weights", "kv", ..., "total"}}`."""
    return {name: share.to_document() for name, share in shares.items()}
