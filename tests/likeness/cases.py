"""The requests that are sent to llama-server and to an instance: every route that both have, every field that shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PROMPT = "The capital of France is"
MESSAGES = [{"role": "user", "content": "Say hello in French."}]
TALK = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Once more."},
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
# The token that ends an answer of `tiny`.
END = 311
# So that it depends on nobody's processor how an answer ends.
SURE = {"temperature": 0, "seed": 7, "ignore_eos": True, "cache_prompt": False}
SHORT = {"n_predict": 4, **SURE}
BRIEF = {"max_tokens": 4, **SURE}
ENDING = {"ignore_eos": False, "logit_bias": [[END, 100]]}
STOPPED = {"logit_bias": [["e", 100]]}
IN_FULL = ("native: plain", "completion: plain", "chat: plain", "chat: verbose", "props", "slots")


@dataclass(frozen=True, slots=True)
class Case:
    """One request. A `raw` body is sent as it is. `in_full`: all of its answer is compared, bulky parts, too."""

    name: str
    method: str
    path: str
    body: dict[str, Any] | None = None
    raw: str = ""

    @property
    def in_full(self) -> bool:
        return self.name.partition(",")[0] in IN_FULL


def _both(name: str, path: str, **body: Any) -> list[Case]:
    """Whole and as a stream."""
    return [
        Case(name, "POST", path, body),
        Case(f"{name}, stream", "POST", path, body | {"stream": True}),
    ]


def _native(name: str, **body: Any) -> list[Case]:
    return _both(f"native: {name}", "/completion", **{"prompt": PROMPT, **SHORT, **body})


def _completion(name: str, **body: Any) -> list[Case]:
    return _both(f"completion: {name}", "/v1/completions", **{"prompt": PROMPT, **BRIEF, **body})


def _chat(name: str, **body: Any) -> list[Case]:
    return _both(f"chat: {name}", "/v1/chat/completions", **{"messages": MESSAGES, **BRIEF, **body})


def _message(name: str, **body: Any) -> list[Case]:
    return _both(f"message: {name}", "/v1/messages", **{"messages": MESSAGES, **BRIEF, **body})


def _response(name: str, **body: Any) -> list[Case]:
    body = {"input": "Say hello in French.", "max_output_tokens": 4, **SURE, **body}
    return _both(f"response: {name}", "/v1/responses", **body)


def _infill(name: str, **body: Any) -> list[Case]:
    body = {"input_prefix": "def f(x):\n    ", "input_suffix": "\n    return y", **SHORT, **body}
    return _both(f"infill: {name}", "/infill", **body)


def _refused(name: str, path: str, body: dict[str, Any] | None = None, raw: str = "") -> Case:
    return Case(f"refused: {name}", "POST", path, body, raw)


NATIVE = [
    *_native("plain"),
    *_native("its end", **ENDING),
    *_native("a stop word", stop=["ee", "x"], **STOPPED),
    *_native("several prompts", prompt=[PROMPT, "One, two,"]),
    *_native("token ids", prompt=[84, 104, " of"]),
    *_native("an object", prompt={"prompt_string": PROMPT}),
    *_native("a mix of prompts", prompt=[PROMPT, [84, 104], {"prompt_string": [84, " of"]}]),
    *_native("one token", n_predict=1),
    *_native("timings of progress", timings_per_token=True, return_progress=True),
    *_native("no tokens", n_predict=0),
    *_native("likelihoods", n_probs=3),
    *_native("likelihoods after sampling", n_probs=3, post_sampling_probs=True, temperature=0.8),
    *_native("tokens", return_tokens=True),
    *_native("timings", timings_per_token=True),
    *_native("progress", return_progress=True),
    *_native("fields", response_fields=["content", "generation_settings/n_predict", "nothing"]),
    *_native("verbose", verbose=True),
    *_native("a schema", json_schema=SCHEMA, n_predict=16, ignore_eos=False),
    *_native("a grammar", grammar='root ::= "yes" | "no"', ignore_eos=False),
    *_native("logit bias", logit_bias=[[5, 1.5], [" the", -1]]),
    *_native("a time limit", t_max_predict_ms=10_000),
    *_native("penalties", repeat_penalty=1.2, presence_penalty=0.1, frequency_penalty=0.1, repeat_last_n=32),
    *_native("dry", dry_multiplier=0.8, dry_base=1.75, dry_allowed_length=2, dry_sequence_breakers=["\n"]),
    *_native("mirostat", mirostat=2, mirostat_tau=5.0, mirostat_eta=0.1, temperature=0.8),
    *_native("samplers", samplers=["top_k", "temperature"], top_k=10, temperature=0.8),
    *_native("samplers by letters", samplers="kt", temperature=0.8),
    *_native("nulls", stop=None, n_probs=None, grammar=None),
]
COMPLETIONS = [
    *_completion("plain"),
    *_completion("usage", stream_options={"include_usage": True}),
    *_completion("a stop word", stop="ee", **STOPPED),
    *_completion("logprobs", logprobs=2),
    *_completion("several prompts", prompt=[PROMPT, "One, two,"]),
    *_completion("timings", timings_per_token=True),
    *_completion("progress", return_progress=True),
    *_completion("verbose", verbose=True),
    *_completion("two", n=2, temperature=0.8),
]
CHATS = [
    *_chat("plain"),
    *_chat("its end", **ENDING),
    *_chat("a talk", messages=TALK),
    *_chat("usage", stream_options={"include_usage": True}),
    *_chat("logprobs", logprobs=True, top_logprobs=2),
    *_chat("logprobs without a number", logprobs=True),
    *_chat("timings", timings_per_token=True),
    *_chat("progress", return_progress=True),
    *_chat("verbose", verbose=True),
    *_chat("a json object", response_format={"type": "json_object"}, max_tokens=24, ignore_eos=False),
    *_chat(
        "a schema",
        response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}},
        max_tokens=24,
        ignore_eos=False,
    ),
    *_chat("two", n=2, temperature=0.8),
    *_chat("timings of progress", timings_per_token=True, return_progress=True),
    *_chat("a prefix", messages=[*MESSAGES, {"role": "assistant", "content": "Bon"}]),
    *_chat(
        "a prefix in words",
        messages=[*MESSAGES, {"role": "assistant", "content": "Bon"}],
        continue_final_message=True,
        add_generation_prompt=False,
    ),
    *_chat("llama.cpp's length first", n_predict=2),
]
OTHER_DIALECTS = [
    *_message("plain"),
    *_message("its end", **ENDING),
    *_message("a talk", messages=TALK[1:], system=[{"type": "text", "text": "You are brief."}]),
    *_message("a prefix", messages=[*MESSAGES, {"role": "assistant", "content": "Bon"}]),
    *_response("plain"),
    *_response("its end", **ENDING),
    *_response("timings and progress", timings_per_token=True, return_progress=True),
    *_response("a talk", input=[{"role": "user", "content": "Hi."}, {"role": "user", "content": "Hello?"}]),
    *_infill("plain"),
    *_infill("files", input_extra=[{"text": "y = 1\n", "filename": "y.py"}], prompt="y"),
    Case("count tokens of a chat", "POST", "/v1/chat/completions/input_tokens", {"messages": MESSAGES}),
    Case("count tokens of a message", "POST", "/v1/messages/count_tokens", {"messages": MESSAGES}),
    Case("count tokens of a response", "POST", "/v1/responses/input_tokens", {"input": "Hi."}),
]
MODEL = [
    Case("tokenize", "POST", "/tokenize", {"content": "Hello world"}),
    Case("tokenize: a mix", "POST", "/tokenize", {"content": ["Hello", 84, " world"]}),
    Case("tokenize: nothing", "POST", "/tokenize", {}),
    Case("tokenize: pieces", "POST", "/tokenize", {"content": "Zażółć 🦊", "with_pieces": True}),
    Case("detokenize", "POST", "/detokenize", {"tokens": [84, 260]}),
    Case("detokenize: nothing", "POST", "/detokenize", {}),
    Case("apply-template", "POST", "/apply-template", {"messages": TALK}),
    Case("health", "GET", "/health"),
    Case("props", "GET", "/props"),
    Case("props: changed", "POST", "/props", {}),
    Case("slots", "GET", "/slots"),
    Case("models", "GET", "/v1/models"),
    Case("metrics", "GET", "/metrics"),
    Case("adapters", "GET", "/lora-adapters"),
]
REFUSALS = [
    _refused("no JSON", "/completion", raw="{"),
    _refused("no prompt", "/completion", {"n_predict": 1}),
    _refused("no messages", "/v1/chat/completions", {"max_tokens": 1}),
    _refused(
        "a prompt with media", "/completion", {"prompt": {"prompt_string": "x", "multimodal_data": [""]}}
    ),
    _refused("a prompt that is nothing", "/completion", {"prompt": {}}),
    _refused(
        "a new answer and a begun one",
        "/v1/chat/completions",
        {
            "messages": [*MESSAGES, {"role": "assistant", "content": "Bon"}],
            "continue_final_message": True,
            "add_generation_prompt": True,
        },
    ),
    _refused("a wrong type", "/completion", {"prompt": "x", "temperature": "hot"}),
    _refused("a grammar that is none", "/completion", {"prompt": "x", "grammar": "root ::= (("}),
    _refused("too long", "/completion", {"prompt": "word " * 3000, "n_predict": 1}),
    _refused("too long, stream", "/completion", {"prompt": "word " * 3000, "n_predict": 1, "stream": True}),
    _refused("no messages of Anthropic's", "/v1/messages", {"max_tokens": 1}),
    _refused("a response without input", "/v1/responses", {"max_output_tokens": 1}),
    _refused("a response before", "/v1/responses", {"input": "x", "previous_response_id": "resp_1"}),
    _refused("no suffix", "/infill", {"input_prefix": "x"}),
    _refused("no such route", "/v1/nothing", {}),
    Case("refused: no such page", "GET", "/nothing"),
]
TOOLS = [
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
]
OTHERS = [
    *_chat("tools that may not be called", tools=TOOLS, tool_choice="none"),
    _refused("vectors of a model for text", "/v1/embeddings", {"input": "x"}),
    _refused("scores of a model for text", "/v1/rerank", {"query": "x", "documents": ["y"]}),
    _refused("a message without a length", "/v1/messages", {"messages": MESSAGES}),
]
VECTORS = [
    Case("vectors", "POST", "/v1/embeddings", {"input": "the cat"}),
    Case("vectors: several", "POST", "/v1/embeddings", {"input": ["the cat", "a dog"]}),
    Case("vectors: base64", "POST", "/v1/embeddings", {"input": "the cat", "encoding_format": "base64"}),
    Case("vectors: token ids", "POST", "/v1/embeddings", {"input": [5, 6, 7]}),
    Case("vectors: native", "POST", "/embedding", {"content": "the cat"}),
    Case("vectors: an object", "POST", "/v1/embeddings", {"input": {"prompt_string": "the cat"}}),
    Case(
        "vectors: a mix",
        "POST",
        "/v1/embeddings",
        {"input": ["the cat", [5, 6], {"content": [{"type": "text", "text": "a dog"}]}]},
    ),
    _refused("a picture", "/v1/embeddings", {"input": {"content": [{"type": "image_url", "image_url": {}}]}}),
    _refused("no input", "/v1/embeddings", {}),
    _refused("an empty input", "/v1/embeddings", {"input": ""}),
]
SCORES = [
    Case("scores", "POST", "/v1/rerank", {"query": "cat", "documents": ["the cat", "a dog"]}),
    Case(
        "scores: the best",
        "POST",
        "/v1/rerank",
        {"query": "cat", "documents": ["the cat", "a dog"], "top_n": 1},
    ),
    Case("scores: texts", "POST", "/rerank", {"query": "cat", "texts": ["the cat", "a dog"]}),
    _refused("no documents", "/v1/rerank", {"query": "cat"}),
]


@dataclass(frozen=True, slots=True)
class Group:
    """Cases for one model of `tests.model.generated`, started with these options."""

    options: dict[str, Any]
    cases: list[Case]


OPTIONS: dict[str, Any] = {"ctx-size": 1024, "parallel": 2, "kv-unified": True}
GROUPS = {
    "tiny": Group(
        OPTIONS | {"metrics": True, "props": True},
        [*NATIVE, *COMPLETIONS, *CHATS, *OTHER_DIALECTS, *OTHERS, *MODEL, *REFUSALS],
    ),
    "bert": Group(OPTIONS | {"embeddings": True}, VECTORS),
    "rerank": Group(OPTIONS | {"reranking": True}, SCORES),
}
