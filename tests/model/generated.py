"""Tiny models with random weights, for what the real small models do not cover. Made when asked for, kept in a cache.

    python -m tests.model.generated NAME...        makes them and prints their paths; without names, what there is

| name | what |
| --- | --- |
| `tiny` | a llama of 2 layers with a byte-level BPE vocabulary of about 600 tokens and a ChatML template |
| `wide` | the same with 49,152 tokens: a step takes a millisecond or two, for benchmarks of what surrounds it |
| `target` | `tiny` and one more layer that changes little: `tiny` drafts well for it, not always rightly |
| `loops` | like `tiny`, but it hardly looks back, so it soon repeats itself |
| `lora-a`, `lora-b` | adapters of rank 4 for `tiny` |
| `last` | a llama whose GGUF says pooling `last`: a causal embedder |
| `both-ways` | a llama whose tokens all see each other, with a cache for them nevertheless |
| `bert`, `bert-cls` | BERT with WordPiece, 1,024 positions, pooling `mean` and `cls` |
| `bert-wide` | the same with 30,000 tokens, as real ones have: they cost memory |
| `rerank` | BERT with a classifier head, pooling `rank` |
| `qwen3-rerank` | a decoder that ranks: two labels, and a template for query and document |
| `mamba` | recurrent: a state of fixed size and no cache that could be cut |
| `jamba` | hybrid: a Mamba layer, then one with attention |

Weights come from a generator that is seeded with the tensor's name, so files are the same wherever they are made, and
`target` has the very layers of `tiny`. A file's place in the cache depends on this source: change it and all are new.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType, PoolingType, TokenType

N_EMBD = 64
N_HEAD = 4
N_HEAD_KV = 2
N_FF = 128
N_VOCAB_WIDE = 49_152
N_CTX_TRAIN = 2048
N_VOCAB_BERT = 30_000
BERT_POSITIONS = 1024
LORA_RANK = 4

_WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "it",
    "was",
    "for",
    "on",
    "are",
    "with",
    "as",
    "they",
    "be",
    "at",
    "one",
    "have",
    "this",
    "from",
    "or",
    "had",
    "by",
    "hot",
    "but",
    "some",
]
_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_PAIR = "<|im_start|>user\n{query}\n{document}<|im_end|>\n<|im_start|>assistant\n"
_FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def generated(name: str) -> Path:
    """The model of this name, made if it is not there yet. KeyError: there is none."""
    make = MODELS[name]
    path = _cache() / f"{name}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as scratch:
            make(Path(scratch) / name)
            # Whole, or not there: several may be making it.
            os.replace(Path(scratch) / name, path)
    return path


def _cache() -> Path:
    root = Path(os.environ.get("LLAMAD_TEST_MODELS") or Path.home() / ".cache/llamad/models")
    return root / "generated" / hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


class _Model:
    """A GGUF that is being written: what all architectures have in common."""

    def __init__(self, path: Path, arch: str, *, layers: int, context: int = N_CTX_TRAIN) -> None:
        self.out = GGUFWriter(path, arch)
        self.out.add_name(f"generated {arch}")
        self.out.add_file_type(LlamaFileType.ALL_F32)
        self.out.add_context_length(context)
        self.out.add_embedding_length(N_EMBD)
        self.out.add_block_count(layers)
        self.out.add_feed_forward_length(N_FF)
        self.out.add_head_count(N_HEAD)
        self.n_vocab = 0

    def close(self) -> None:
        self.out.write_header_to_file()
        self.out.write_kv_data_to_file()
        self.out.write_tensors_to_file()
        self.out.close()

    def weight(self, name: str, *shape: int, scale: float | None = None) -> None:
        """Normally distributed; by default so that a product keeps the size of what goes in."""
        spread = shape[-1] ** -0.5 if scale is None else scale
        self.put(name, _random(name).standard_normal(shape) * spread)

    def ones(self, name: str, *shape: int) -> None:
        """About one each, as a norm's weights are."""
        self.put(name, 1 + 0.1 * _random(name).standard_normal(shape))

    def small(self, name: str, *shape: int) -> None:
        """About zero each, as a bias is."""
        self.put(name, 0.1 * _random(name).standard_normal(shape))

    def put(self, name: str, values: np.ndarray) -> None:
        self.out.add_tensor(name, np.ascontiguousarray(values, np.float32))

    # ---- vocabularies

    def byte_pairs(self, n_vocab: int = 0) -> None:
        """GPT-2's kind of vocabulary: every byte, a few words, control tokens; up to `n_vocab` words that no text has."""
        tokens, merges = _byte_alphabet(), []
        for word in _WORDS:
            joined = "Ġ"
            for letter in word:
                merges.append(f"{joined} {letter}")
                joined += letter
                if joined not in tokens:
                    tokens.append(joined)
        control = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *_FIM)
        tokens += [f"Ġw{number}" for number in range(n_vocab - len(tokens) - len(control))]
        kinds = [TokenType.NORMAL] * len(tokens) + [TokenType.CONTROL] * len(control)
        tokens += control
        self._vocabulary("gpt2", tokens, kinds)
        self.out.add_tokenizer_pre("smollm")
        self.out.add_token_merges(merges)
        self.out.add_bos_token_id(tokens.index("<|endoftext|>"))
        self.out.add_eos_token_id(tokens.index("<|im_end|>"))
        self.out.add_add_bos_token(False)
        for key, token in zip(("fim_pre", "fim_suf", "fim_mid"), _FIM, strict=True):
            self.out.add_uint32(f"tokenizer.ggml.{key}_token_id", tokens.index(token))
        self.out.add_chat_template(_CHATML)

    def word_pieces(self, n_vocab: int = 0) -> None:
        """BERT's kind: words begin with a mark, their continuations do not; up to `n_vocab` words that no text has."""
        letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-:()"
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokens = special + [f"▁{part}" for part in (*letters, *_WORDS)] + [*letters, "ing", "ed", "er", "es"]
        tokens += [f"▁w{number}" for number in range(n_vocab - len(tokens))]
        self._vocabulary("bert", tokens, [TokenType.CONTROL] * 5 + [TokenType.NORMAL] * (len(tokens) - 5))
        self.out.add_token_type_count(2)
        for id, add in enumerate(
            (
                self.out.add_pad_token_id,
                self.out.add_unk_token_id,
                self.out.add_bos_token_id,
                self.out.add_sep_token_id,
                self.out.add_mask_token_id,
            )
        ):
            add(id)
        self.out.add_eos_token_id(tokens.index("[SEP]"))

    def _vocabulary(self, model: str, tokens: list[str], kinds: list[TokenType]) -> None:
        self.n_vocab = len(tokens)
        self.out.add_vocab_size(len(tokens))
        self.out.add_tokenizer_model(model)
        self.out.add_token_list(tokens)
        self.out.add_token_types(kinds)

    # ---- layers

    def ends(self, embedding: float = 0.3) -> None:
        """What a decoder has before its first and after its last layer.

        Logits spread enough to have a clear winner. The smaller the `embedding`, the less it is the last token alone
        that decides on it.
        """
        self.weight("token_embd.weight", self.n_vocab, N_EMBD, scale=embedding)
        self.ones("output_norm.weight", N_EMBD)
        self.weight("output.weight", self.n_vocab, N_EMBD, scale=0.4)

    def attention(self, layer: int, scale: float | None = None, sharp: float = 0.25) -> None:
        at, head = f"blk.{layer}", N_EMBD // N_HEAD
        self.ones(f"{at}.attn_norm.weight", N_EMBD)
        # Attention that picks: an even one would be the same wherever the eye falls.
        self.weight(f"{at}.attn_q.weight", N_EMBD, N_EMBD, scale=sharp)
        self.weight(f"{at}.attn_k.weight", N_HEAD_KV * head, N_EMBD, scale=sharp)
        self.weight(f"{at}.attn_v.weight", N_HEAD_KV * head, N_EMBD)
        self.weight(f"{at}.attn_output.weight", N_EMBD, N_EMBD, scale=scale)

    def feed_forward(self, layer: int, scale: float | None = None) -> None:
        at = f"blk.{layer}"
        self.ones(f"{at}.ffn_norm.weight", N_EMBD)
        self.weight(f"{at}.ffn_gate.weight", N_FF, N_EMBD)
        self.weight(f"{at}.ffn_up.weight", N_FF, N_EMBD)
        self.weight(f"{at}.ffn_down.weight", N_EMBD, N_FF, scale=scale)

    def recurrence(self, layer: int, *, norms: bool) -> None:
        at, inner, state, rank = f"blk.{layer}", 2 * N_EMBD, 8, 4
        self.ones(f"{at}.attn_norm.weight", N_EMBD)
        self.weight(f"{at}.ssm_in.weight", 2 * inner, N_EMBD)
        self.weight(f"{at}.ssm_conv1d.weight", inner, 4)
        self.small(f"{at}.ssm_conv1d.bias", inner)
        # What goes into the states and comes out of them outweighs the token itself.
        self.weight(f"{at}.ssm_x.weight", rank + 2 * state, inner, scale=3 * inner**-0.5)
        self.weight(f"{at}.ssm_dt.weight", inner, rank)
        # Mamba's own start: states that fade at different speeds, the slowest within a hundred tokens.
        self.put(f"{at}.ssm_dt.bias", -4 + 0.5 * _random(f"{at}.ssm_dt.bias").standard_normal(inner))
        self.put(f"{at}.ssm_a", -np.tile(np.arange(1, state + 1), (inner, 1)))
        self.ones(f"{at}.ssm_d", inner)
        self.weight(f"{at}.ssm_out.weight", N_EMBD, inner)
        if norms:
            self.ones(f"{at}.ssm_dt_norm.weight", rank)
            self.ones(f"{at}.ssm_b_norm.weight", state)
            self.ones(f"{at}.ssm_c_norm.weight", state)
        if layer == 0:
            self.out.add_ssm_conv_kernel(4)
            self.out.add_ssm_inner_size(inner)
            self.out.add_ssm_state_size(state)
            self.out.add_ssm_time_step_rank(rank)


def _llama(
    path: Path,
    *,
    layers: int = 2,
    n_vocab: int = 0,
    pooling: PoolingType | None = None,
    causal: bool = True,
    loops: bool = False,
) -> None:
    model = _Model(path, "llama", layers=layers)
    model.byte_pairs(n_vocab)
    model.out.add_head_count_kv(N_HEAD_KV)
    model.out.add_layer_norm_rms_eps(1e-5)
    model.out.add_rope_dimension_count(N_EMBD // N_HEAD)
    if pooling is not None:
        model.out.add_pooling_type(pooling)
        model.out.add_causal_attention(causal)
    model.ends(1.0 if loops else 0.3)
    for layer in range(layers):
        scale = 0.03 if layer >= 2 else None
        model.attention(layer, scale, sharp=0.1 if loops else 0.25)
        model.feed_forward(layer, scale)
    model.close()


def _qwen3_rerank(path: Path) -> None:
    model = _Model(path, "qwen3", layers=2)
    model.byte_pairs()
    model.out.add_chat_template([{"name": "rerank", "template": _PAIR}])
    model.out.add_head_count_kv(N_HEAD_KV)
    model.out.add_layer_norm_rms_eps(1e-6)
    model.out.add_pooling_type(PoolingType.RANK)
    model.out.add_classifier_output_labels(["yes", "no"])
    model.ends()
    model.weight("cls.output.weight", 2, N_EMBD, scale=0.3)
    for layer in range(2):
        model.attention(layer)
        model.ones(f"blk.{layer}.attn_q_norm.weight", N_EMBD // N_HEAD)
        model.ones(f"blk.{layer}.attn_k_norm.weight", N_EMBD // N_HEAD)
        model.feed_forward(layer)
    model.close()


def _lora(path: Path, seed: str) -> None:
    out = GGUFWriter(path, "llama")
    out.add_type("adapter")
    out.add_string("adapter.type", "lora")
    out.add_float32("adapter.lora.alpha", 2.0 * LORA_RANK)
    for layer in range(2):
        for part, rows in (("attn_q", N_EMBD), ("attn_output", N_EMBD), ("ffn_up", N_FF)):
            name = f"blk.{layer}.{part}.weight"
            random = _random(seed + name)
            out.add_tensor(f"{name}.lora_a", random.standard_normal((LORA_RANK, N_EMBD)).astype(np.float32))
            out.add_tensor(
                f"{name}.lora_b", (0.05 * random.standard_normal((rows, LORA_RANK))).astype(np.float32)
            )
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def _bert(path: Path, pooling: PoolingType, n_vocab: int = 0) -> None:
    model = _Model(path, "bert", layers=2, context=BERT_POSITIONS)
    model.word_pieces(n_vocab)
    model.out.add_causal_attention(False)
    model.out.add_layer_norm_eps(1e-12)
    model.out.add_pooling_type(pooling)
    model.weight("token_embd.weight", model.n_vocab, N_EMBD, scale=1.0)
    model.weight("token_types.weight", 2, N_EMBD, scale=0.1)
    model.weight("position_embd.weight", BERT_POSITIONS, N_EMBD, scale=0.3)
    _layer_norm(model, "token_embd_norm")
    for layer in range(2):
        at = f"blk.{layer}"
        for part, rows, columns in (
            ("attn_q", N_EMBD, N_EMBD),
            ("attn_k", N_EMBD, N_EMBD),
            ("attn_v", N_EMBD, N_EMBD),
            ("attn_output", N_EMBD, N_EMBD),
            ("ffn_up", N_FF, N_EMBD),
            ("ffn_down", N_EMBD, N_FF),
        ):
            model.weight(f"{at}.{part}.weight", rows, columns)
            model.small(f"{at}.{part}.bias", rows)
        _layer_norm(model, f"{at}.attn_output_norm")
        _layer_norm(model, f"{at}.layer_output_norm")
    if pooling is PoolingType.RANK:
        model.weight("cls.weight", N_EMBD, N_EMBD)
        model.small("cls.bias", N_EMBD)
        model.weight("cls.output.weight", 1, N_EMBD, scale=0.5)
        model.small("cls.output.bias", 1)
    model.close()


def _layer_norm(model: _Model, name: str) -> None:
    model.ones(f"{name}.weight", N_EMBD)
    model.small(f"{name}.bias", N_EMBD)


def _mamba(path: Path) -> None:
    model = _Model(path, "mamba", layers=2)
    model.byte_pairs()
    model.out.add_layer_norm_rms_eps(1e-5)
    model.ends()
    for layer in range(2):
        model.recurrence(layer, norms=False)
    model.close()


def _jamba(path: Path) -> None:
    model = _Model(path, "jamba", layers=2)
    model.byte_pairs()
    model.out.add_head_count_kv([0, N_HEAD_KV])
    model.out.add_layer_norm_rms_eps(1e-5)
    model.ends()
    model.recurrence(0, norms=True)
    model.feed_forward(0)
    model.attention(1)
    model.feed_forward(1)
    model.close()


def _random(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def _byte_alphabet() -> list[str]:
    """GPT-2's letters for the 256 bytes: the printable ones stand for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


MODELS: dict[str, Callable[[Path], None]] = {
    "tiny": _llama,
    "wide": lambda path: _llama(path, n_vocab=N_VOCAB_WIDE),
    "target": lambda path: _llama(path, layers=3),
    "loops": lambda path: _llama(path, loops=True),
    "lora-a": lambda path: _lora(path, "a"),
    "lora-b": lambda path: _lora(path, "b"),
    "last": lambda path: _llama(path, pooling=PoolingType.LAST),
    "both-ways": lambda path: _llama(path, pooling=PoolingType.MEAN, causal=False),
    "bert": lambda path: _bert(path, PoolingType.MEAN),
    "bert-cls": lambda path: _bert(path, PoolingType.CLS),
    "bert-wide": lambda path: _bert(path, PoolingType.MEAN, N_VOCAB_BERT),
    "rerank": lambda path: _bert(path, PoolingType.RANK),
    "qwen3-rerank": _qwen3_rerank,
    "mamba": _mamba,
    "jamba": _jamba,
}


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        print(generated(wanted))
    if not sys.argv[1:]:
        print("\n".join(MODELS))
