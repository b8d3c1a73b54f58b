"""The start document: what each option means for the engine and for requests, and which templates are used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamad.api.conversation import Conversation
from llamad.api.generation import Generation
from llamad.api.message import AssistantMessage, read_message
from llamad.api.tools import Tool, Toolbox
from llamad.child.chat import Chat, choose_chat
from llamad.child.instance_spec import N_CTX_DEFAULT_MAX, context_size, parse_spec
from llamad.child.own_rules import own_defaults
from llamad.engine.keeping import Keeping
from llamad.engine.loading import of_draft_model
from llamad.engine.vocabulary import EngineSettings, ModelFacts, Rules, SamplingParams
from llamad.errors import LlamadError

BODY: dict[str, Any] = {"model": "m", "path": "/m.gguf", "token": "t", "transport": "tcp", "socket": ""}
USER = Conversation(({"role": "user", "content": "hi"},))


def chosen(options: dict[str, Any], model: ModelFacts) -> Chat:
    return choose_chat(spec(**options).chat, model, {"<think>": 7}.get)


def spec(**options: Any):
    return parse_spec(BODY | {"options": options})


def facts(template: str | None, *, add_bos: bool = False) -> ModelFacts:
    return ModelFacts("llama", "", 1, 1, 512, 512, 512, 9, 9, 1, template, "<s>", "</s>", add_bos)


def test_without_options_everything_has_llama_servers_defaults() -> None:
    parsed = spec()
    assert parsed.engine == EngineSettings(path="/m.gguf")
    assert parsed.defaults == Generation()
    assert (parsed.name, parsed.token, parsed.unix_path) == ("m", "t", "")


@pytest.mark.parametrize(
    ("body", "devices", "split"),
    [
        ({"options": {"device": "CUDA1,RPC0", "tensor-split": "3/1.5"}}, ("CUDA1", "RPC0"), (3.0, 1.5)),
        ({"options": {"device": "none"}}, ("none",), ()),
        ({"options": {"tensor-split": "3,1"}, "devices": [], "tensor_split": []}, (), (3.0, 1.0)),
        ({"devices": ["A", "B"], "tensor_split": [2.0, 1.0]}, ("A", "B"), (2.0, 1.0)),
        ({"devices": ["A"], "tensor_split": []}, ("A",), ()),
    ],
    ids=["options", "none", "no choice", "split", "one"],
)
def test_where_it_shall_be(body: dict[str, Any], devices: tuple[str, ...], split: tuple[float, ...]) -> None:
    engine = parse_spec({"path": "/m.gguf", "token": "t", **body}).engine
    assert (engine.devices, engine.tensor_split) == (devices, split)


@pytest.mark.parametrize(
    "body",
    [{"devices": [5]}, {"devices": ["A"], "tensor_split": ["1"]}, {"options": {"tensor-split": "x"}}],
    ids=str,
)
def test_nonsense_about_where_it_shall_be(body: dict[str, Any]) -> None:
    with pytest.raises(LlamadError) as caught:
        parse_spec({"path": "/m.gguf", "token": "t", **body})
    assert caught.value.kind == "bad-start"


def test_every_option_arrives() -> None:
    parsed = spec(
        **{
            "ctx-size": 1024,
            "parallel": 2,
            "batch-size": 64,
            "ubatch-size": 32,
            "n-gpu-layers": 7,
            "threads": 3,
            "threads-batch": 4,
            "flash-attn": "off",
            "cache-type-k": "q8_0",
            "cache-type-v": "f32",
            "kv-unified": False,
            "mmap": False,
            "mlock": True,
            "swa-full": True,
            "context-shift": True,
            "keep": 5,
            "embeddings": True,
            "seed": 5,
            "temperature": 0.25,
            "top-k": 6,
            "top-p": 0.5,
            "min-p": 0.125,
            "typical-p": 0.75,
            "repeat-last-n": 8,
            "repeat-penalty": 1.5,
            "presence-penalty": 1,
            "frequency-penalty": 2.5,
            "ignore-eos": True,
            "logit-bias": ["15+1.5", "16-inf"],
            "n-predict": 9,
            "cache-prompt": False,
            "stop-timeout": 10.0,
        }
    )
    assert parsed.engine == EngineSettings(
        "/m.gguf", 1024, 2, 64, 32, 7, 3, 4, "off", "q8_0", "f32", False, False, True, True, True, True
    )
    assert parsed.defaults == Generation(
        max_tokens=9,
        cache_prompt=False,
        n_keep=5,
        sampling=SamplingParams(
            seed=5,
            temperature=0.25,
            top_k=6,
            top_p=0.5,
            min_p=0.125,
            typical_p=0.75,
            repeat_last_n=8,
            repeat_penalty=1.5,
            presence_penalty=1.0,
            frequency_penalty=2.5,
            logit_bias=((15, 1.5), (16, float("-inf"))),
            ignore_eos=True,
        ),
    )


def test_what_is_kept_of_prompts_is_bounded_by_default() -> None:
    assert spec().keeping == Keeping(ram_bytes=512 << 20, similarity=0.1)
    options = {"cache-ram": 7, "cache-idle-slots": False, "ctx-checkpoints": 3, "checkpoint-min-step": 9}
    assert spec(**options, **{"slot-prompt-similarity": 1}).keeping == Keeping(7 << 20, False, 3, 9, 1.0)


def test_the_share_of_prompts_in_a_step() -> None:
    assert spec().prefill_budget == 0.8
    assert spec(**{"prefill-budget": 1}).prefill_budget == 1.0


def test_other_spellings_mean_the_same() -> None:
    parsed = spec(**{"temp": 0.5, "no-mmap": True, "predict": 3})
    assert parsed.defaults.sampling.temperature == 0.5
    assert parsed.engine.use_mmap is False
    assert parsed.defaults.max_tokens == 3


def test_samplers_have_their_own_notations() -> None:
    parsed = spec(**{"samplers": "top_k;temp", "sampler-seq": "m", "dry-sequence-breaker": '["a", "\\n"]'})
    assert parsed.defaults.sampling.samplers == ("top_k", "temperature")
    assert parsed.defaults.sampling.dry_sequence_breakers == ("a", "\n")
    assert spec(**{"sampler-seq": "mt"}).defaults.sampling.samplers == ("min_p", "temperature")
    for text, breakers in (('"none"', ()), ('"\\\\n"', ("\n",)), ('"."', (".",))):
        assert spec(**{"dry-sequence-breaker": text}).defaults.sampling.dry_sequence_breakers == breakers


def test_rules_of_a_model_are_read_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text('{"properties": {"a": {}}}')
    schema = Rules("json_schema", '{"properties":{"a":{}},"additionalProperties":false}')
    assert own_defaults(spec(**{"json-schema-file": str(file)})).rules == schema
    assert own_defaults(spec(**{"json-schema": file.read_text()})).rules == schema
    assert own_defaults(spec(grammar='root ::= "x"')).rules == Rules("gbnf", 'root ::= "x"')
    assert own_defaults(spec(**{"grammar-file": str(file)})).rules == Rules("gbnf", file.read_text())
    assert own_defaults(spec()).rules is None


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"grammar": "x", "json-schema": "{}"}, "together"),
        ({"grammar-file": "/nowhere/x"}, "/nowhere/x"),
        ({"grammar-file": "/dev/zero"}, "more than"),
        ({"json-schema": "nonsense"}, "json-schema"),
        ({"json-schema": "[]"}, "a JSON object"),
    ],
    ids=str,
)
def test_rules_that_cannot_be_read_stop_the_start(options: dict[str, Any], word: str) -> None:
    with pytest.raises(LlamadError, match=word) as caught:
        own_defaults(spec(**options))
    assert caught.value.kind == "bad-rules"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"token": ""}, "token"),
        ({"path": None}, "path"),
        ({"transport": "unix"}, "socket"),
        ({"options": {"ctx-size": "big"}}, "ctx-size"),
        ({"options": {"mmap": 1}}, "mmap"),
        ({"options": {"logit-bias": ["x"]}}, "logit-bias"),
        ({"options": {"sampler-seq": "kz"}}, "'z'"),
        ({"options": {"dry-sequence-breaker": "[5]"}}, "dry-sequence-breaker"),
        ({"options": {"mirostat": "2"}}, "mirostat"),
    ],
    ids=str,
)
def test_a_wrong_start_document_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(LlamadError, match=word) as caught:
        parse_spec(BODY | change)
    assert caught.value.kind == "bad-start"


@pytest.mark.parametrize(
    ("trained", "expected"), [(2048, 2048), (131072, N_CTX_DEFAULT_MAX), (0, N_CTX_DEFAULT_MAX)]
)
def test_the_default_context_is_the_models_own_within_a_bound(trained: int, expected: int) -> None:
    assert context_size(trained) == expected


def test_the_models_own_template_is_used() -> None:
    chat = chosen({}, facts("{{ bos_token }}own {{ messages[0].content }}", add_bos=True))
    assert (chat.prompt(USER), chat.stops) == ("own hi", ())


@pytest.mark.parametrize("own", [None, "{% broken"], ids=["no template", "a broken template"])
def test_chatml_is_used_otherwise_and_its_end_mark_ends_answers(own: str | None) -> None:
    chat = chosen({}, facts(own))
    assert chat.prompt(USER) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert chat.stops == ("<|im_end|>",)


def test_the_operators_template_wins(tmp_path: Path) -> None:
    own = facts("own")
    file = tmp_path / "template.jinja"
    file.write_text("file {{ messages[0].content }}")
    assert chosen({"chat-template": "given {{ 1 }}"}, own).prompt(USER) == "given 1"
    assert chosen({"chat-template-file": str(file)}, own).prompt(USER) == "file hi"
    assert chosen({"chat-template": "chatml"}, own).stops == ("<|im_end|>",)


@pytest.mark.parametrize(
    "options",
    [{"chat-template": "{% broken"}, {"chat-template": "llama9"}, {"chat-template-file": "/nowhere/x.jinja"}],
    ids=str,
)
def test_an_operators_template_that_cannot_be_used_is_an_error(options: dict[str, str]) -> None:
    with pytest.raises(LlamadError, match="cannot") as caught:
        chosen(options, facts("own"))
    assert caught.value.kind == "bad-template"


THINKS = "{{ messages[-1].content }}{% if enable_thinking %}<think>{% else %}<think></think>{% endif %}{{ effort }}"
BEGUN = Conversation(({"role": "user", "content": "hi"},), prefill="So")


@pytest.mark.parametrize(
    ("options", "conversation", "prompt"),
    [
        ({}, USER, "hi<think>"),
        ({"reasoning": "off"}, USER, "hi<think></think>"),
        ({"reasoning-effort": "none"}, USER, "hi<think></think>"),
        ({"chat-template-kwargs": '{"enable_thinking": false}'}, USER, "hi<think></think>"),
        ({"chat-template-kwargs": '{"effort": "E"}'}, USER, "hi<think>E"),
        ({"reasoning-budget": 0}, USER, "hi<think></think>"),
        ({}, BEGUN, "hi<think></think>So"),
        ({"prefill-assistant": False}, BEGUN, "So<think>"),
        ({"prefill-assistant": False}, replace(BEGUN, continued=True), "hi<think></think>So"),
        ({"skip-chat-parsing": True}, BEGUN, "hi<think></think>So"),
    ],
    ids=str,
)
def test_options_of_chats_change_prompts(
    options: dict[str, Any], conversation: Conversation, prompt: str
) -> None:
    assert chosen(options, facts(THINKS)).prompt(conversation) == prompt


@pytest.mark.parametrize(
    ("options", "content", "reasoning"),
    [
        ({}, "so", "hm"),
        ({"reasoning-format": "deepseek"}, "so", "hm"),
        ({"reasoning-format": "none"}, "<think>hm</think>so", ""),
        ({"reasoning-format": "deepseek-legacy"}, "<think>hm</think>so", "hm"),
        ({"skip-chat-parsing": True}, "hm</think>so", ""),
    ],
    ids=str,
)
def test_options_say_where_thoughts_are_told(options: dict[str, Any], content: str, reasoning: str) -> None:
    turn = chosen(options, facts(THINKS)).turn(USER, Generation())
    assert read_message(turn.make_parser(), "hm</think>so") == AssistantMessage(content, reasoning)


def test_requests_with_tools_have_a_template_of_their_own_where_the_model_has_one() -> None:
    model = replace(facts("plain"), tools_template="T{% for m in messages %}{{ m.content }}{% endfor %}")
    asked = replace(USER, toolbox=Toolbox((Tool("now", "", {}),)))
    assert chosen({}, model).prompt(USER) == "plain"
    assert chosen({}, model).prompt(asked).startswith("T")
    assert chosen({"chat-template": "given {{ 1 }}"}, model).prompt(asked) == "given 1"
    assert chosen({}, replace(model, tools_template="{% broken")).prompt(USER) == "plain"


def test_marks_that_are_control_tokens_are_shown() -> None:
    assert chosen({}, facts(THINKS)).turn(USER, Generation()).generation.shown == ((7, b"<think>"),)


def test_adapters_have_ids_in_the_order_of_options_and_lists() -> None:
    options = {"lora-scaled": ["/c.gguf:0.5", "/d:e.gguf:-1"], "lora": ["/a.gguf", "/b.gguf"]}
    found = [(adapter.path, adapter.scale) for adapter in spec(**options).engine.adapters]
    assert found == [("/a.gguf", 1.0), ("/b.gguf", 1.0), ("/c.gguf", 0.5), ("/d:e.gguf", -1.0)]
    unused = spec(**options, **{"lora-init-without-apply": True}).engine.adapters
    assert [adapter.scale for adapter in unused] == [0.0] * 4


@pytest.mark.parametrize(
    ("options", "types"),
    [
        ({}, ()),
        ({"spec-type": ["none"]}, ()),
        ({"spec-type": ["ngram-simple", "ngram-mod", "ngram-simple"]}, ("ngram-simple", "ngram-mod")),
        ({"spec-default": True}, ("ngram-mod",)),
        ({"spec-draft-model": "/d.gguf"}, ("draft-simple",)),
        ({"spec-type": ["none"], "spec-draft-model": "/d.gguf"}, ()),
        (
            {"spec-type": ["ngram-map-k", "draft-simple"], "spec-draft-model": "/d.gguf"},
            ("ngram-map-k", "draft-simple"),
        ),
    ],
    ids=str,
)
def test_who_drafts(options: dict[str, Any], types: tuple[str, ...]) -> None:
    parsed = spec(**options)
    assert parsed.engine.speculation.types == parsed.defaults.speculation == types


def test_how_a_draft_model_is_loaded() -> None:
    options = {"spec-draft-model": "/d.gguf", "spec-draft-device": "A,B", "ctx-size": 64, "threads": 5}
    more = {"spec-draft-threads": 2, "spec-draft-type-k": "q8_0", "lora": ["/a"], "pooling": "mean"}
    engine = spec(**options, **more, embeddings=True).engine
    draft = of_draft_model(engine)
    assert draft is not None
    assert (draft.path, draft.devices, draft.n_ctx) == ("/d.gguf", ("A", "B"), 64)
    assert (draft.threads, draft.threads_batch, draft.cache_type_k, draft.adapters) == (2, 2, "q8_0", ())
    assert (draft.embedding, draft.pooling) == (False, "")
    assert of_draft_model(draft) is None
    assert of_draft_model(spec(**{"spec-type": ["none"], "spec-draft-model": "/d.gguf"}).engine) is None


def test_a_draft_model_that_nobody_named() -> None:
    with pytest.raises(LlamadError, match="draft-simple needs spec-draft-model"):
        spec(**{"spec-type": ["draft-simple"]})
