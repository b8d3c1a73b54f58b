"""How a context is laid out: tokens, batches, sequences and outputs, by what the model is and what is asked of it. Pure.

| the model | generates | its inputs become vectors |
| --- | --- | --- |
| a decoder: each token sees those before it | yes | with `embeddings` or a `pooling`, in pieces, in sequences beside those of the slots |
| one whose tokens all see each other (BERT and its kin) | no | always; in one piece, so a batch must hold the longest |

What outputs cost decides much here. Where vectors are wanted llama.cpp makes an output of every token, and gives each a
row of logits, needed or not: vocabulary x 4 bytes, kept on the host. A decoder therefore takes small steps. The others
cannot; their steps are as long as their longest input (`ctx-size` bounds it), which is what they are measured with.
"""

from __future__ import annotations

from dataclasses import dataclass

from llamad.engine.vocabulary import EngineSettings
from llamad.errors import ConfigError

SEQUENCES_MAX = 256
"""llama.cpp's own limit."""
# Inputs that a decoder embeds at once. With a sliding window each costs memory, hence not more.
_INPUTS_BESIDE_SLOTS = 8
# Inputs in one batch of a model without a cache, where they cost nothing.
_INPUTS_AT_ONCE = 64
_LOGITS_BYTES_MAX = 128 << 20
_STEP_MIN = 32


@dataclass(frozen=True, slots=True)
class Traits:
    """What a model file says. `causal`: tokens see only those before them. `pooling`: "" where it names none.

    `ranks`: it has a head that makes scores.
    """

    causal: bool
    pooling: str
    n_ctx_train: int
    n_vocab: int
    n_embd_out: int
    ranks: bool = True


@dataclass(frozen=True, slots=True)
class Embedding:
    """How inputs become vectors. `pooling` "": nobody has said how. `whole`: an input must be in one batch.

    `n_step`: tokens that a batch of several inputs has at most; a longer one of up to `n_input_max` goes alone where it
    must go whole. `sequences`: ids that are theirs alone.
    """

    pooling: str
    whole: bool
    n_step: int
    n_input_max: int
    sequences: range


@dataclass(frozen=True, slots=True)
class Shape:
    """A context's numbers. `n_outputs`: rows of logits and vectors that one batch may have."""

    n_ctx: int
    n_batch: int
    n_ubatch: int
    n_sequences: int
    n_outputs: int
    kv_unified: bool
    generates: bool = True
    embedding: Embedding | None = None
    n_drafted: int = 0
    """Tokens that one batch may have beside those of slots, each with logits of its own."""
    output_bytes: int = 0
    """What the outputs take on the host once vectors have been made. llama.cpp makes room for one a sequence at the
    start, and for more when it needs it; the allocator does not always give the first room back, so that is not deducted.
    """


def shape_of(settings: EngineSettings, traits: Traits) -> Shape:
    """Raises ConfigError for settings that cannot work with this model."""
    if not traits.ranks:
        raise ConfigError(f"cannot load {settings.path}: it has no classifier head, which ranking needs")
    if not traits.causal:
        return _whole(settings, traits)
    n_ctx = settings.n_ctx or traits.n_ctx_train
    n_ubatch = min(settings.n_ubatch, settings.n_batch)
    n_slots = settings.n_parallel
    n_drafted = settings.speculation.n_drafted(n_slots, n_ubatch)
    plain = Shape(
        n_ctx,
        settings.n_batch,
        n_ubatch,
        n_slots,
        n_slots + n_drafted,
        settings.kv_unified,
        n_drafted=n_drafted,
    )
    if not (settings.embedding or settings.pooling or traits.pooling):
        return plain
    if not settings.kv_unified:
        raise ConfigError(
            f"cannot load {settings.path}: embeddings of a model that generates need kv-unified, as inputs have "
            "no slots of their own"
        )
    return _beside(plain, settings, traits)


def _beside(plain: Shape, settings: EngineSettings, traits: Traits) -> Shape:
    """A decoder that also embeds."""
    n_sequences = min(SEQUENCES_MAX, settings.n_parallel + _INPUTS_BESIDE_SLOTS)
    if n_sequences == settings.n_parallel:
        raise ConfigError(
            f"cannot load {settings.path}: embeddings beside parallel {settings.n_parallel} need a sequence more "
            f"than the {SEQUENCES_MAX} that there are"
        )
    fitting = max(_STEP_MIN, _LOGITS_BYTES_MAX // (4 * traits.n_vocab))
    n_step = min(plain.n_ubatch, plain.n_ctx, fitting)
    n_outputs = max(n_step, n_sequences, plain.n_outputs)
    return Shape(
        plain.n_ctx,
        plain.n_batch,
        plain.n_ubatch,
        n_sequences,
        n_outputs,
        kv_unified=True,
        embedding=Embedding(
            settings.pooling or traits.pooling,
            whole=False,
            n_step=n_step,
            n_input_max=plain.n_ctx,
            sequences=range(settings.n_parallel, n_sequences),
        ),
        n_drafted=plain.n_drafted,
        output_bytes=_output_bytes(n_outputs, traits),
    )


def _whole(settings: EngineSettings, traits: Traits) -> Shape:
    trained = traits.n_ctx_train or settings.n_ctx
    n_ctx = min(settings.n_ctx or trained, trained)
    n_batch = max(n_ctx, min(settings.n_ubatch, settings.n_batch))
    n_sequences = min(SEQUENCES_MAX, n_batch, max(settings.n_parallel, _INPUTS_AT_ONCE))
    return Shape(
        n_ctx,
        n_batch,
        n_batch,
        n_sequences,
        n_batch,
        kv_unified=True,
        generates=False,
        embedding=Embedding(
            settings.pooling or traits.pooling,
            whole=True,
            n_step=min(settings.n_ubatch, settings.n_batch),
            n_input_max=n_ctx,
            sequences=range(n_sequences),
        ),
        output_bytes=_output_bytes(n_batch, traits),
    )


def _output_bytes(n_outputs: int, traits: Traits) -> int:
    return 4 * n_outputs * (traits.n_vocab + traits.n_embd_out)
