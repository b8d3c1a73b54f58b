"""The engine on SmolLM2: shared batches, own answers, cancellation, reuse, refusals, exact sampling."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamad.engine.backend import Entry, Outcome
from llamad.engine.vocabulary import EngineSettings, Failed, Finished, SamplingParams
from llamad.errors import ConfigError, LlamadError, RequestError
from tests.conftest import wait_until
from tests.engine.live import Live, full_chain_and_prefiltered, live, loaded

pytestmark = pytest.mark.model

N_SLOTS = 8
FRANCE = "What is the capital of France? Answer in one short sentence."
FACTS = {
    "France": "Paris",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "Germany": "Berlin",
    "Spain": "Madrid",
    "Egypt": "Cairo",
    "Greece": "Athens",
    "Russia": "Moscow",
}


def chat(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def smol(smollm2: Path) -> Iterator[Live]:
    with live(smollm2, n_ctx=2048, n_parallel=N_SLOTS) as engine:
        yield engine


def test_an_abort_that_was_asked_for_is_no_error_in_the_log(
    smollm2: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with loaded(smollm2, n_ctx=512, n_parallel=1) as backend, caplog.at_level("DEBUG", "llamad"):
        backend.abort()
        assert backend.decode([Entry(0, 0, list(range(400)), True)]) is Outcome.ABORTED
        said = [record for record in caplog.records if "decode" in record.getMessage()]
        assert said
        assert all(record.levelname == "DEBUG" for record in caplog.records)
        backend.rearm()
        backend.decode([Entry(0, 0, [backend.facts.n_vocab + 1], True)])
        assert any(record.levelname == "ERROR" for record in caplog.records)


def test_what_is_known_of_the_model(smol: Live) -> None:
    facts = smol.engine.facts
    assert (facts.architecture, facts.n_vocab, facts.n_ctx_train) == ("llama", 49152, 8192)
    assert (facts.n_ctx, facts.n_ctx_slot, facts.n_slots) == (2048, 2048, N_SLOTS)
    assert (facts.bos_token, facts.eos_token, facts.add_bos) == ("<|im_start|>", "<|im_end|>", False)
    assert facts.chat_template is not None
    assert "<|im_start|>" in facts.chat_template
    assert facts.n_params > 130e6


@pytest.mark.parametrize("text", ["", " ", "Zażółć gęślą jaźń 🦊 日本語", "a\0b", "x" * 5000])
def test_tokens_and_back(smol: Live, text: str) -> None:
    assert smol.engine.detokenize(smol.engine.tokenize(text, False, True)) == text


def test_special_tokens_are_parsed_only_when_asked(smol: Live) -> None:
    assert smol.engine.tokenize("<|im_end|>") == [2]
    assert len(smol.engine.tokenize("<|im_end|>", parse_special=False)) > 1
    with pytest.raises(RequestError, match="49152"):
        smol.engine.detokenize([49152])


def test_eight_at_once_share_batches_and_each_answers_its_own_prompt(smol: Live) -> None:
    ids = {country: smol.submit(chat(f"What is the capital of {country}?"), 12) for country in FACTS}
    smol.wait(*ids.values())
    assert smol.engine.stats().generating_max == N_SLOTS
    for country, id in ids.items():
        assert country in smol.texts[id], f"{country}: {smol.texts[id]}"
        assert not [other for other in FACTS if other != country and other in smol.texts[id]]
    right = sum(FACTS[country] in smol.texts[id] for country, id in ids.items())
    assert right >= 6, smol.texts


def test_teacher_forced_logits_of_a_batch_agree_with_a_solo_run(smollm2: Path) -> None:
    with loaded(smollm2, n_ctx=1024, n_parallel=N_SLOTS) as backend:
        texts = [f"The capital of {name} is {city}, a large and old city." for name, city in FACTS.items()]
        prompts = [backend.tokenize(text, True, True) for text in texts]
        n_steps = min(map(len, prompts))
        together = []
        for step in range(n_steps):
            entries = [Entry(slot, step, [prompt[step]], True) for slot, prompt in enumerate(prompts)]
            assert backend.decode(entries) is Outcome.DONE
            together.append([backend.logits(slot).copy() for slot in range(N_SLOTS)])
        for slot, prompt in enumerate(prompts):
            backend.clear(slot)
            for step in range(n_steps):
                backend.decode([Entry(slot, step, [prompt[step]], True)])
                alone, batched = backend.logits(0), together[step][slot]
                assert np.corrcoef(alone, batched)[0, 1] > 0.995
                assert np.abs(alone - batched).max() < 2.0
            for stranger in (other for other in range(N_SLOTS) if other != slot):
                assert np.corrcoef(together[-1][slot], together[-1][stranger])[0, 1] < 0.9999


def test_the_same_requests_one_after_another_are_reproducible_by_seed(smollm2: Path) -> None:
    with live(smollm2, n_ctx=1024, n_parallel=2, kv_unified=False) as engine:
        assert engine.engine.facts.n_ctx_slot == 512
        questions = [chat(f"Tell me a story of {name} and what it found in the old house.") for name in FACTS]
        rounds = [
            [engine.ask(question, 10, sampling=SamplingParams(seed=7))[0] for question in questions[:4]]
            for _ in range(2)
        ]
        assert rounds[0] == rounds[1]
        again = [engine.ask(questions[0], 10, sampling=SamplingParams(seed=7)) for _ in range(2)]
        assert [text for text, _ in again] == [rounds[0][0]] * 2
        assert again[1][1].timings.cached_tokens > 10
        other = engine.ask(questions[0], 10, sampling=SamplingParams(seed=8))[0]
        assert other != rounds[0][0]


def test_a_drawn_seed_is_told_and_repeats_the_answer(smol: Live) -> None:
    question = chat("Name a colour.")
    text, end = smol.ask(question, 8, cache_prompt=False, sampling=SamplingParams(temperature=1.5))
    params = SamplingParams(temperature=1.5, seed=end.seed)
    assert smol.ask(question, 8, cache_prompt=False, sampling=params)[0] == text


def test_stop_strings_and_reasons(smol: Live) -> None:
    question = chat("What is the capital of France?")
    text, end = smol.ask(question, 20)
    assert (end.reason, text) == ("stop", "The capital of France is Paris.")
    text, end = smol.ask(question, 20, stop=("ital of Fr", "zzz"))
    assert (end.reason, end.stop_word, text) == ("stop", "ital of Fr", "The cap")
    text, end = smol.ask(question, 3)
    assert (end.reason, text, end.timings.predicted_tokens) == ("length", "The capital of", 3)
    _, end = smol.ask(question, 20, sampling=SamplingParams(temperature=0.0, ignore_eos=True))
    assert (end.reason, end.timings.predicted_tokens) == ("length", 20)


def test_emoji_arrive_whole(smol: Live) -> None:
    # Each of them is three tokens, of which the first two are no characters yet.
    parts: list[str] = []
    smol.on_text = lambda output: parts.append(output.text)
    text, _ = smol.ask("Repeat: " + "🦊🐙" * 9, 18)
    smol.on_text = lambda _: None
    assert "🦊🐙" in text
    assert "\ufffd" not in text
    assert "".join(parts) == text
    assert set(parts) <= set("🦊🐙"), parts


def test_an_over_long_prompt_is_refused_with_both_numbers(smol: Live) -> None:
    id = smol.submit([5] * 3000)
    end = smol.ends[id]
    assert isinstance(end, Failed)
    assert (end.error.status, end.error.kind) == (400, "exceed-context-size")
    assert end.error.details == {"n_prompt_tokens": 3000, "n_ctx": 2048}


def test_the_next_turn_reuses_its_own_prefix(smol: Live) -> None:
    first, second = chat("My name is Ada and I like bees."), chat("Call me Bob, I am a sailor at sea.")
    answers = {prompt: smol.ask(prompt, 6)[0] for prompt in (first, second)}
    for prompt in (first, second):
        following = prompt + answers[prompt] + "<|im_end|>\n" + chat("And what do I like?")
        _, end = smol.ask(following, 3)
        assert end.timings.cached_tokens >= len(smol.engine.tokenize(prompt))
        assert end.timings.cached_tokens < end.timings.prompt_tokens


def test_cancel_in_mid_prefill_frees_the_slot_at_once(smol: Live) -> None:
    smol.settle()
    before = smol.engine.stats()
    id = smol.submit([*range(1000, 2500), 3], 4, cache_prompt=False)
    wait_until(lambda: any(slot.state == "processing_prompt" for slot in smol.engine.slots()), every_s=0.001)
    smol.engine.cancel(id)
    began = time.monotonic()
    smol.settle()
    assert time.monotonic() - began < 1.0
    after = smol.engine.stats()
    assert after.requests_cancelled == before.requests_cancelled + 1
    assert after.prompt_tokens - before.prompt_tokens < 1500
    assert id not in smol.ends


def test_cancel_in_mid_generation_frees_the_slot(smol: Live) -> None:
    id = smol.submit(chat("Count from one to a thousand."), 500)
    wait_until(lambda: smol.texts.get(id), every_s=0.005)
    smol.engine.cancel(id)
    smol.settle()
    assert id not in smol.ends
    assert "Paris" in smol.ask(chat("What is the capital of France?"), 10)[0]


def test_a_context_that_fills_up_ends_one_answer_and_no_other(smollm2: Path) -> None:
    with live(smollm2, n_ctx=256, n_parallel=2) as engine:
        ids = [
            engine.submit(chat("Tell a long story."), -1, sampling=SamplingParams(seed=1, ignore_eos=True))
        ]
        ids.append(engine.submit(chat("What is the capital of France?"), 12))
        engine.wait(*ids)
        assert "Paris" in engine.texts[ids[1]]
        end = engine.ends[ids[0]]
        assert isinstance(end, Finished)
        assert end.reason == "length"
        assert end.timings.prompt_tokens + end.timings.predicted_tokens == 256


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(top_k=100, temperature=2.0, top_p=1.0, min_p=0.0),
        SamplingParams(typical_p=0.95, temperature=2.0),
        SamplingParams(top_k=1),
    ],
)
def test_prefiltered_draws_equal_the_full_chain(smol: Live, params: SamplingParams) -> None:
    smol.settle()
    backend = smol.backend
    backend.clear(0)
    backend.decode([Entry(0, 0, backend.tokenize("Once upon a time there", True, True), True)])
    row = backend.logits(0).copy()
    backend.clear(0)
    full, few = full_chain_and_prefiltered(backend, row, params, draws=200, seed=11)
    assert full == few
    assert params.top_k == 1 or len(set(full)) > 1


def test_loading_reports_progress_and_failures(smollm2: Path, tmp_path: Path) -> None:
    from llamad.engine import llama

    seen: list[float] = []
    settings = EngineSettings(str(smollm2), n_ctx=256, n_parallel=1)
    llama.load(settings, seen.append).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(smollm2.read_bytes()[:100_000])
    with pytest.raises(LlamadError, match="cannot load") as caught:
        llama.load(replace(settings, path=str(broken)))
    assert caught.value.kind == "load-failed"
    assert "no reason" not in caught.value.message
    with pytest.raises(ConfigError, match="no such file"):
        llama.load(replace(settings, path=str(tmp_path / "absent.gguf")))


def family(live: Live, n: int, prompt: str, max_tokens: int, **sampling: Any) -> list[int]:
    """`n` answers to one prompt; seeds as a client's `n` gives them."""
    first = live.submit(
        prompt, max_tokens, family=live.last_id + 1, sampling=SamplingParams(seed=7, **sampling)
    )
    return [first] + [
        live.submit(prompt, max_tokens, family=first, sampling=SamplingParams(seed=7 + place, **sampling))
        for place in range(1, n)
    ]


def test_several_answers_to_one_prompt_evaluate_it_once(smol: Live) -> None:
    prompt = chat("Tell me of a town by the sea, and of who lives there. " * 8)
    before = smol.engine.stats()
    ids = family(smol, 4, prompt, 12, temperature=0.9)
    smol.wait(*ids)
    n_prompt = len(smol.engine.tokenize(prompt))
    assert smol.engine.stats().prompt_tokens - before.prompt_tokens <= n_prompt
    assert [smol.finished(id).timings.cached_tokens for id in ids[1:]] == [n_prompt] * 3
    assert len({smol.texts[id] for id in ids}) == 4
    assert smol.engine.stats().generating_max >= 4


@pytest.mark.parametrize("kv_unified", [True, False])
def test_followers_answer_as_the_first_does(smollm2: Path, kv_unified: bool) -> None:
    """At temperature 0 all answers are the same, and the same as that of a request alone."""
    with live(smollm2, n_ctx=2048, n_parallel=3, kv_unified=kv_unified) as engine:
        alone, _ = engine.ask(chat(FRANCE), 12, cache_prompt=False)
        ids = family(engine, 5, chat(FRANCE), 12, temperature=0.0)
        engine.wait(*ids)
        assert {engine.texts[id] for id in ids} == {alone}


def test_a_long_beginning_that_another_slot_has_is_shared(smol: Live) -> None:
    smol.settle()
    system = "<|im_start|>system\n" + "You answer in one word. Be exact. " * 50 + "<|im_end|>\n"
    paris, _ = smol.ask(system + chat(FRANCE), 6)
    tokyo, end = smol.ask(system + chat("What is the capital of Japan? One word."), 6)
    assert end.timings.cached_tokens > 300
    again, end = smol.ask(system + chat(FRANCE), 6)
    assert ("Paris" in paris, "Tokyo" in tokyo, again == paris) == (True, True, True)
