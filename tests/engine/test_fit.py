"""Fitting: never more than was reserved, and nothing larger would have been allowed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.breakdown import HOST, Device
from llamad.engine.fit import (
    FIT_CTX_DEFAULT,
    FIT_TARGET_DEFAULT_BYTES,
    GRANULARITY,
    Choice,
    Range,
    Refusal,
    choose,
    context_range,
    limits_for,
    parse_targets,
)

MIB = 1024 * 1024
GPU = "CUDA0"


@dataclass
class Model:
    """Cost in straight lines, layers moving from host to GPU; rounded up to `block`, as buffers are."""

    fixed: int
    layer: int
    token: int
    n_layers: int
    block: int = 1
    probes: list[tuple[int, int]] = field(default_factory=list)

    def cost(self, n_ctx: int, n_gpu_layers: int) -> dict[str, int]:
        def of(layers: int) -> int:
            exact = layers * self.layer + layers * self.token * n_ctx
            return -(-exact // self.block) * self.block

        return {HOST: self.fixed + of(self.n_layers - n_gpu_layers), GPU: of(n_gpu_layers)}

    def probe(self, n_ctx: int, n_gpu_layers: int) -> dict[str, int]:
        self.probes.append((n_ctx, n_gpu_layers))
        return self.cost(n_ctx, n_gpu_layers)


def within(cost: dict[str, int], limits: dict[str, int]) -> bool:
    return all(cost[name] <= limits[name] for name in limits)


models = st.builds(
    Model,
    fixed=st.integers(0, 500 * MIB),
    layer=st.integers(1, 200 * MIB),
    token=st.integers(1, 32 * 1024),
    n_layers=st.integers(1, 60),
    block=st.sampled_from([1, 4096, 3 * MIB]),
)
ranges = st.tuples(st.integers(1, 64), st.integers(0, 160), st.booleans(), st.sampled_from([1, 2, 4]))
sizes = st.integers(0, 16 * 1024 * MIB)
limits_of_some = st.dictionaries(st.sampled_from([HOST, GPU]), sizes)


def a_range(model: Model, shape: tuple[int, int, bool, int]) -> Range:
    low, more, layers_open, n_streams = shape
    smallest = low * 100
    return Range(smallest, smallest + more * 150, model.n_layers, layers_open, n_streams)


@given(models, ranges, limits_of_some)
def test_a_choice_is_within_every_limit_and_in_the_range(
    model: Model, shape: tuple[int, int, bool, int], limits: dict[str, int]
) -> None:
    among = a_range(model, shape)
    found = choose(model.probe, among, limits)
    if isinstance(found, Refusal):
        assert not within(dict(found.cost), limits)
        return
    assert found.cost == model.cost(found.n_ctx, found.n_gpu_layers)
    assert within(dict(found.cost), limits)
    assert among.n_ctx_min <= found.n_ctx <= among.n_ctx_max
    assert found.n_gpu_layers == model.n_layers or (among.layers_open and found.n_ctx == among.n_ctx_min)


@given(models, ranges, limits_of_some)
def test_no_larger_choice_would_fit(
    model: Model, shape: tuple[int, int, bool, int], limits: dict[str, int]
) -> None:
    among = a_range(model, shape)
    step = GRANULARITY * among.n_streams
    found = choose(model.probe, among, limits)

    def fits(n_ctx: int, n_gpu_layers: int) -> bool:
        return within(model.cost(n_ctx, n_gpu_layers), limits)

    if isinstance(found, Refusal):
        layers = range(model.n_layers + 1) if among.layers_open else [model.n_layers]
        assert not any(fits(among.n_ctx_min, n) for n in layers)
    elif found.n_gpu_layers < model.n_layers:
        assert not any(fits(found.n_ctx, n) for n in range(found.n_gpu_layers + 1, model.n_layers + 1))
    elif found.n_ctx < among.n_ctx_max:
        assert not fits((found.n_ctx // step + 1) * step, model.n_layers) or (
            (found.n_ctx // step + 1) * step >= among.n_ctx_max and not fits(among.n_ctx_max, model.n_layers)
        )


@given(models, ranges, limits_of_some)
def test_probes_are_few(model: Model, shape: tuple[int, int, bool, int], limits: dict[str, int]) -> None:
    choose(model.probe, a_range(model, shape), limits)
    assert len(model.probes) <= 3 + 2 + 8 + 7


def test_a_straight_line_takes_four_probes() -> None:
    model = Model(fixed=0, layer=MIB, token=1024, n_layers=10)
    found = choose(model.probe, Range(4096, 131072, 10), {GPU: 400 * MIB})
    assert isinstance(found, Choice)
    assert found.n_ctx == (390 * MIB // 10240) // GRANULARITY * GRANULARITY
    assert len(model.probes) == 4


def test_what_fits_is_left_alone_after_one_probe() -> None:
    model = Model(fixed=MIB, layer=MIB, token=1, n_layers=4)
    found = choose(model.probe, Range(512, 8192, 4, layers_open=True), {GPU: 1024 * MIB, HOST: 1024 * MIB})
    assert found == Choice(8192, 4, model.cost(8192, 4))
    assert model.probes == [(8192, 4)]


def test_layers_leave_the_gpu_only_when_the_smallest_context_does_not_fit() -> None:
    model = Model(fixed=0, layer=10 * MIB, token=1, n_layers=30)
    found = choose(model.probe, Range(4096, 8192, 30, layers_open=True), {GPU: 105 * MIB})
    assert isinstance(found, Choice)
    assert (found.n_ctx, found.n_gpu_layers) == (4096, 10)
    assert len(model.probes) == 5


def test_fixed_layers_are_refused_with_the_numbers() -> None:
    model = Model(fixed=0, layer=10 * MIB, token=0, n_layers=30)
    found = choose(model.probe, Range(4096, 8192, 30), {GPU: 105 * MIB})
    assert found == Refusal(
        "300 MiB needed on CUDA0, 105 MiB to be had (context 4096, 30 layers on GPUs)", model.cost(4096, 30)
    )


def test_a_short_host_is_not_helped_by_taking_layers_from_the_gpu() -> None:
    model = Model(fixed=500 * MIB, layer=10 * MIB, token=0, n_layers=30)
    found = choose(model.probe, Range(512, 512, 30, layers_open=True), {GPU: 1024 * MIB, HOST: 400 * MIB})
    assert isinstance(found, Refusal)
    assert "500 MiB needed on host, 400 MiB to be had" in found.reason
    assert model.probes == [(512, 30)]


@pytest.mark.parametrize(
    ("n_ctx", "default", "streams", "fit", "expected"),
    [
        (0, 8192, 1, True, (4096, 8192)),
        (0, 8192, 1, False, (8192, 8192)),
        (0, 2048, 1, True, (2048, 2048)),
        (0, 32768, 4, True, (16384, 32768)),
        (0, 8192, 4, True, (8192, 8192)),
        (1024, 8192, 1, True, (1024, 1024)),
        (1024, 8192, 1, False, (1024, 1024)),
    ],
)
def test_context_range(n_ctx: int, default: int, streams: int, fit: bool, expected: tuple[int, int]) -> None:
    assert context_range(n_ctx, default, streams, fit, FIT_CTX_DEFAULT) == expected


def device(name: str, free_mib: int, kind: str = "gpu") -> Device:
    return Device(name, "", kind, 4 * free_mib * MIB, free_mib * MIB)


CPU = device(HOST, 9000, HOST)


@pytest.mark.parametrize(
    ("devices", "reserved", "targets", "expected"),
    [
        ([CPU, device("A", 3000)], None, None, {"A": 1976 * MIB}),
        ([CPU, device("A", 3000)], None, (2000 * MIB,), {"A": 1000 * MIB}),
        ([CPU, device("A", 500)], None, None, {"A": 0}),
        ([CPU], None, None, {HOST: 7976 * MIB}),
        ([CPU, device("A", 3000)], {"A": 2900 * MIB, HOST: MIB}, None, {"A": 2900 * MIB, HOST: MIB}),
        ([CPU, device("A", 3000)], {"A": 2900 * MIB}, (500 * MIB,), {"A": 2500 * MIB}),
        ([CPU, device("A", 3000)], {"A": 100 * MIB}, (500 * MIB,), {"A": 100 * MIB}),
        (
            [CPU, device("A", 3000), device("B", 3000)],
            None,
            (1, 2),
            {"A": 3000 * MIB - 1, "B": 3000 * MIB - 2},
        ),
        (
            [CPU, device("A", 3000), device("B", 3000), device("C", 3000)],
            None,
            (1, 2),
            {"A": 3000 * MIB - 1, "B": 3000 * MIB - 2, "C": 3000 * MIB - FIT_TARGET_DEFAULT_BYTES},
        ),
    ],
)
def test_limits(
    devices: list[Device],
    reserved: dict[str, int] | None,
    targets: tuple[int, ...] | None,
    expected: dict[str, int],
) -> None:
    assert limits_for(devices, reserved, targets) == expected


def test_targets() -> None:
    assert parse_targets("1024") == (1024 * MIB,)
    assert parse_targets("1, 2/3") == (MIB, 2 * MIB, 3 * MIB)
    for text in ("", "1,", "-5", "1GiB", "1.5"):
        with pytest.raises(ValueError, match="expected MiB"):
            parse_targets(text)
