"""Adding up llama.cpp's account, and walking its C++ map."""

from __future__ import annotations

import ctypes
import os
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine import cxx, memory
from llamad.engine.breakdown import (
    HOST,
    Buffer,
    Share,
    anonymous_bytes,
    by_device,
    to_document,
    totals,
    with_overhead,
)
from llamad.errors import LlamadError

_SIZE = ctypes.sizeof(cxx.Node)


def test_buffers_of_a_device_are_added_up_and_the_host_is_always_there() -> None:
    buffers = [Buffer("CUDA0", weights=100, kv=20), Buffer("CUDA0", compute=3), Buffer("CUDA1", kv=7)]
    assert by_device(buffers) == {
        HOST: Share(),
        "CUDA0": Share(weights=100, kv=20, compute=3),
        "CUDA1": Share(kv=7),
    }


def test_a_share_as_a_document_has_all_purposes_and_their_total() -> None:
    shares = with_overhead(
        {HOST: Share(1, 2, 4, 8, 16, 32, 128, 256), "CUDA0": Share()}, {HOST: 64, "CUDA1": 9}
    )
    assert to_document(shares)[HOST] == {
        "weights": 1,
        "kv": 2,
        "compute": 4,
        "projector": 8,
        "draft": 16,
        "adapters": 32,
        "overhead": 64,
        "prompts": 128,
        "rules": 256,
        "total": 511,
    }
    assert totals(shares) == {HOST: 511, "CUDA0": 0}


def test_of_the_hosts_buffers_mapped_weights_and_compute_are_no_anonymous_memory() -> None:
    buffers = [
        Buffer(HOST, mapped=True, weights=1000),
        Buffer(HOST, in_place=False, weights=10),
        Buffer(HOST, kv=200, compute=5000),
        Buffer("CUDA0", weights=70000, kv=70000),
    ]
    assert anonymous_bytes(buffers) == 210


@given(st.lists(st.tuples(*(st.integers(1, 2**60) for _ in range(4))), min_size=1, max_size=40), st.randoms())
def test_walking_a_map_gives_each_node_once(content: list[tuple[int, ...]], shape: Random) -> None:
    found = cxx.Map(root=_tree(content, shape), count=len(content))
    assert sorted(cxx.walk(found)) == sorted(content)


@pytest.mark.parametrize("count", [1, 2, 4, 100])
def test_a_count_that_is_not_the_trees_is_noticed(count: int) -> None:
    found = cxx.Map(root=_tree([(1, 1, 1, 1)] * 3, Random(3)), count=count)
    with pytest.raises(LlamadError, match="cannot measure the model") as failure:
        list(cxx.walk(found))
    assert failure.value.kind == "measure-failed"


@pytest.mark.parametrize(("counted", "told"), [(0, 100), (49, 100), (401, 100), (2**63, 100)])
def test_weights_that_cannot_be_are_noticed(counted: int, told: int) -> None:
    with pytest.raises(LlamadError, match=f"{counted} bytes of weights, the model {told}"):
        memory._check_sums([Buffer(HOST, weights=counted)], told)


def test_resident_memory_by_the_kernels_account() -> None:
    anonymous, all_of_it = memory.resident_bytes("RssAnon"), memory.resident_bytes("VmRSS")
    assert 1 << 20 < anonymous < all_of_it
    total, free = memory.host_memory()
    assert (
        0 < free < total == pytest.approx(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), rel=0.01)
    )


def test_the_host_is_the_first_device() -> None:
    host = memory.devices()[0]
    assert (host.name, host.kind) == (HOST, HOST)
    assert host.total_bytes == memory.host_memory()[0]


def _tree(content: list[tuple[int, ...]], shape: Random) -> int:
    """A binary tree of malloc'ed nodes, cut at random places, as libstdc++ would own it."""
    if not content:
        return 0
    middle = shape.randrange(len(content))
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_size_t, (ctypes.c_size_t,)
    address = int(malloc(_SIZE))
    node = cxx.Node.from_address(address)
    node.left, node.right = _tree(content[:middle], shape), _tree(content[middle + 1 :], shape)
    node.type, node.weights, node.kv, node.compute = content[middle]
    return address
