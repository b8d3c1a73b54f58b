"""What ends an answer besides what the request says."""

from __future__ import annotations

from llamad.api.generation import Generation
from llamad.engine.vocabulary import SamplingParams


def test_a_mark_that_stands_for_an_end_of_generation_ends_the_answer_once() -> None:
    generation = Generation(stop=("<end>", "x"))
    assert generation.ended_by(("<end>", "<stop>")).stop == ("<end>", "x", "<stop>")


def test_who_passes_over_ends_of_generation_passes_over_such_marks() -> None:
    generation = Generation(stop=("x",), sampling=SamplingParams(ignore_eos=True))
    assert generation.ended_by(("<end>",)).stop == ("x",)
