"""A model and its context, through the low-level functions of llama-cpp-python.

How it is done, and why:

* One `llama_batch` for the life of the context, its pointers set once to numpy arrays: filling 512 tokens takes 36 us,
  against 1.7 ms by ctypes attributes.
* ctypes' CDLL releases the GIL around a call, which a decode must and a call of a microsecond should not: short calls
  go through a second handle on the same library, PyDLL. `llama_get_logits` is one of them only because `decode` has
  already waited for the device, with the GIL released.
* `n_outputs_max` is the number of slots, and of drafted tokens, not of batch rows: the compute buffer shrinks to a tenth.
* The abort callback is libc's `strlen` on a two-byte buffer, so it needs no GIL and costs nothing: an empty string is 0
  (go on), one byte is 1 (abort).
* The log callback is set before the backend starts; without one llama.cpp prints thousands of lines.
* What llama.cpp would answer with GGML_ASSERT, which ends the process, is checked here first.

Variables that belong in the environment of the process before this is imported; whoever starts it sets them.
`GOMP_SPINCOUNT=40000` and `OMP_WAIT_POLICY=active`: OpenMP's threads otherwise spin at barriers for so long that any other
load on a core slows all by a factor of 3 to 10 (`spinning`). `GGML_NO_BACKTRACE=1`: a failing assertion otherwise runs a
debugger first.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from llamad.engine import checks, openmp, placement
from llamad.engine.backend import Entry, Outcome
from llamad.engine.batch import Batch
from llamad.engine.chain import Chains
from llamad.engine.complaints import Complaints
from llamad.engine.context import context_params, meta, pair_form, read_shape, set_extra
from llamad.engine.drafting import Drafter
from llamad.engine.embedding import Matrix
from llamad.engine.forms import FimTokens
from llamad.engine.ggml import Ggml
from llamad.engine.lora import Loras
from llamad.engine.narrow import Row
from llamad.engine.placement import Placed
from llamad.engine.sampling import Chain
from llamad.engine.sequences import Sequences
from llamad.engine.shape import Shape
from llamad.engine.spinning import Spinning
from llamad.engine.stages import Stage
from llamad.engine.vocabulary import Adapters, EngineSettings, ModelFacts
from llamad.errors import LlamadError, RequestError

log = logging.getLogger(__name__)

# ggml_log_level, as in ggml.h: none, debug, info, warn, error, continued line. llama.cpp is chatty at its info level.
_LOG_LEVELS = (logging.DEBUG, logging.DEBUG, logging.DEBUG, logging.WARNING, logging.ERROR, logging.DEBUG)

# Warnings about what is so on purpose: vectors are pooled in llamad.engine.embedding; room is made when it is needed.
_EXPECTED = ("model default pooling_type is", "failed to find a memory slot")


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _to_log(level: int, text: bytes, aborted: int | None) -> None:
    """`aborted`: address of a backend's abort flag. What llama.cpp calls a failure while that is set was asked for."""
    line = text.decode(errors="replace").strip()
    expected = any(words in line for words in _EXPECTED) or (aborted and ctypes.string_at(aborted))
    known = level < len(_LOG_LEVELS) and not expected
    if line.strip("."):
        log.log(_LOG_LEVELS[level] if known else logging.DEBUG, "%s", line)


def load(settings: EngineSettings, progress: Callable[[float], None] = lambda _: None) -> LlamaBackend:
    """Load a model and make its context; the first decode has been done when this returns.

    `progress` is told the share of the weights that has been read, 0.0 to 1.0. Raises ConfigError for settings that
    cannot work, OutOfMemoryError or LlamadError (kind `load-failed`) with llama.cpp's last words otherwise.
    """
    checks.check_settings(settings, lib.llama_max_parallel_sequences())
    lib.llama_log_set(_to_log, None)
    lib.llama_backend_init()
    doing = f"cannot load {settings.path}"
    placed = place(settings)
    with Complaints(log) as complaints:
        model = _load_model(settings, placed, progress)
        if not model:
            raise complaints.failure(f"{doing}: no model")
        try:
            shape = read_shape(settings, model)
            loras = Loras(model, settings.adapters, lambda: complaints.reason)
        except LlamadError:
            lib.llama_model_free(model)
            raise
        context = lib.llama_init_from_model(model, context_params(settings, shape))
        if not context:
            lib.llama_model_free(model)
            raise complaints.failure(f"{doing}: no context of {shape.n_ctx} tokens")
        backend = LlamaBackend(model, context, loras, settings, placed, shape)
        if not backend.warm_up():
            backend.close()
            raise complaints.failure(f"{doing}: no first evaluation")
        openmp.let_go()  # another thread will evaluate
    return backend


def supports_gpu() -> bool:
    """Whether there is a device that layers can be put on."""
    return bool(lib.llama_supports_gpu_offload())


def place(settings: EngineSettings) -> Placed:
    """Where the model will be. Raises LlamadError (`load-failed`) where that cannot be, with the devices there are."""
    try:
        return placement.place(settings, Ggml())
    except (ValueError, OSError, AttributeError) as error:
        raise LlamadError(f"cannot load {settings.path}: {error}", kind="load-failed") from error


class LlamaBackend(Sequences):
    """One model, one context. See `backend.Backend` for the calls that the engine makes."""

    def __init__(
        self, model: Any, context: Any, loras: Loras, settings: EngineSettings, placed: Placed, shape: Shape
    ) -> None:
        super().__init__(model, context, settings)
        self._loras = loras
        self._placed = placed
        self._shape = shape
        self.embedding = shape.embedding
        self._vocab = lib.llama_model_get_vocab(model)
        self._short = _short_calls()
        self._flag = ctypes.create_string_buffer(2)
        strlen = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
        self._strlen = lib.ggml_abort_callback(strlen or 0)
        lib.llama_set_abort_callback(context, self._strlen, ctypes.addressof(self._flag))
        lib.llama_log_set(_to_log, ctypes.addressof(self._flag))
        self._pieces: dict[int, bytes] = {}
        self._eog: tuple[int, ...] | None = None
        self.n_step = min(lib.llama_n_batch(context), lib.llama_n_ubatch(context))
        self.facts = self._read_facts(settings)
        if settings.context_shift and not self.facts.shifts:
            log.warning("context-shift is off: the memory of this model cannot be shifted")
        n_vocab = self.facts.n_vocab
        self._batch = Batch(self.n_step, shape.n_sequences)
        self._chains = Chains(self._vocab, n_vocab)
        self.drafters: Sequence[Drafter] = ()
        self.n_drafted = 0
        self.draft: LlamaBackend | None = None
        self._spinning = Spinning(lib.llama_n_threads(context))
        self._logits_at = 0
        self._logits: Any = np.empty((0, n_vocab), np.float32)
        self._n_outputs_had = 0

    def close(self) -> None:
        """Free context and model. Nothing may be called afterwards."""
        if self.draft is not None:
            self.draft.close()
        self._spinning.close()
        if self._context:
            lib.llama_log_set(_to_log, None)
            lib.llama_free(self._context)
            lib.llama_model_free(self._model)
            self._context = self._model = None

    def warm_up(self) -> bool:
        """Evaluate one token and forget it: reads the weights into memory.

        All adapters take part: with them the buffers are as large as they will ever be.
        """
        self.apply(self._loras.all)
        lib.llama_set_warmup(self._context, True)
        evaluate = self.decode if self._shape.generates else self.embed
        outcome = evaluate([Entry(0, 0, [max(0, lib.llama_vocab_bos(self._vocab))], True)])
        lib.llama_set_warmup(self._context, False)
        lib.llama_memory_clear(self._memory, True)
        return outcome is Outcome.DONE

    def apply(self, adapters: Adapters) -> None:
        self._loras.apply(self._context, adapters)

    def decode(self, entries: Sequence[Entry]) -> Outcome:
        """Evaluate one batch. Waits for the result, with the GIL released."""
        if self.embedding:
            self._short.set_embeddings(self._context, not self._shape.generates)
        return self._evaluate(self._batch.fill(entries))

    def embed(self, entries: Sequence[Entry]) -> Outcome:
        """Evaluate one batch for the vectors of all its tokens, in the same way."""
        self._short.set_embeddings(self._context, True)
        outcome = self._evaluate(self._batch.fill(entries, every=True))
        self._n_outputs_had = max(self._n_outputs_had, self._batch.n_tokens)
        return outcome

    def _evaluate(self, batch: Any) -> Outcome:
        self._spinning.begin()
        code = lib.llama_decode(self._context, batch)
        if self._placed.handles:
            # The call returns before a GPU has done its part.
            lib.llama_synchronize(self._context)
        self._spinning.end()
        if code < 0:
            log.error("cannot decode a batch of %d tokens: llama.cpp returned %d", self._batch.n_tokens, code)
        known = {0: Outcome.DONE, 1: Outcome.FULL, 2: Outcome.ABORTED, -1: Outcome.INVALID}
        return known.get(code, Outcome.BROKEN)

    def logits(self, index: int) -> Row:
        """Row `index` of the last decode's outputs, in batch order."""
        address = self._short.get_logits(self._context)
        if address != self._logits_at:
            shape = (self._shape.n_outputs, self.facts.n_vocab)
            pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
            self._logits_at, self._logits = address, np.ctypeslib.as_array(pointer, shape)
        row: Row = self._logits[index]
        return row

    def hidden(self) -> Matrix:
        """The vectors of all tokens of the last `embed`, in batch order: a view that the next call overwrites."""
        address = lib.llama_get_embeddings(self._context)
        return np.ctypeslib.as_array(address, (self._batch.n_tokens, self.facts.n_embd_out))

    def scores(self, sequence: int) -> Matrix:
        """What the classifier head made of a sequence in the last `embed`: one row."""
        address = lib.llama_get_embeddings_seq(self._context, sequence)
        return np.ctypeslib.as_array(address, (1, lib.llama_model_n_cls_out(self._model)))

    @property
    def output_bytes_to_come(self) -> int:
        """What the host will hold beside what it holds now, once the largest batch has been embedded."""
        shape = self._shape
        had = self._n_outputs_had if self._n_outputs_had > shape.n_sequences else 0
        return shape.output_bytes * (shape.n_outputs - had) // shape.n_outputs

    def speculate(
        self, types: Sequence[str], drafters: Sequence[Drafter], draft: LlamaBackend | None
    ) -> None:
        """Have drafts verified, of these types by these; `draft` is the small model, closed with this one."""
        self.facts = replace(self.facts, speculation=tuple(types))
        self.drafters, self.draft = drafters, draft
        self.n_drafted = self._shape.n_drafted

    def abort(self) -> None:
        """Make the abort callback answer yes."""
        self._flag[0] = b"!"

    def rearm(self) -> None:
        """Make the abort callback answer no."""
        self._flag[0] = b"\0"

    def chain(self, stages: Sequence[Stage]) -> Chain:
        """A C sampler chain; freed with the object. From any thread; with DRY it takes up to a second."""
        return self._chains.chain(stages)

    def piece(self, token: int) -> bytes:
        """Bytes of a token, control tokens as nothing. Looked up once per token and kept."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._read_piece(token, special=False)
        return piece

    def pieces(self) -> list[bytes]:
        """`piece` of every token, in order. From any thread; takes 0.1 s for 50,000 tokens."""
        return [self._read_piece(token, special=False) for token in range(self.facts.n_vocab)]

    def is_eog(self, token: int) -> bool:
        return bool(self._short.is_eog(self._vocab, token))

    def eog_tokens(self) -> tuple[int, ...]:
        """All tokens that end an answer. The first call asks for each token of the vocabulary: 0.3 us each."""
        if self._eog is None:
            flags = map(self._short.is_eog, itertools.repeat(self._vocab), range(self.facts.n_vocab))
            self._eog = tuple(itertools.compress(itertools.count(), flags))
        return self._eog

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids. Reads the vocabulary only, so any thread may call it beside a decode."""
        data = text.encode("utf-8", errors="replace")
        room = len(data) + 2
        while True:
            buffer = np.empty(room, np.int32)
            pointer = buffer.ctypes.data_as(lib.llama_token_p)
            count = lib.llama_tokenize(
                self._vocab, data, len(data), pointer, room, add_special, parse_special
            )
            if count >= 0:
                ids: list[int] = buffer[:count].tolist()
                return ids
            room = -count

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Text of token ids, control tokens by their names; broken UTF-8 becomes U+FFFD."""
        for token in tokens:
            if not 0 <= token < self.facts.n_vocab:
                raise RequestError(
                    f"cannot detokenize token {token}: the vocabulary has {self.facts.n_vocab}"
                )
        pieces = (self._read_piece(token, special=True) for token in tokens)
        return b"".join(pieces).decode(errors="replace")

    def _read_piece(self, token: int, *, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        size = self._short.token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = self._short.token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[:size]

    def _read_facts(self, settings: EngineSettings) -> ModelFacts:
        model, vocab, context = self._model, self._vocab, self._context
        template, with_tools = (lib.llama_model_chat_template(model, name) for name in (None, b"tool_use"))
        embedding = self.embedding
        return ModelFacts(
            architecture=meta(model, "general.architecture"),
            description=self._text(lib.llama_model_desc, model),
            n_params=lib.llama_model_n_params(model),
            size_bytes=lib.llama_model_size(model),
            n_ctx=lib.llama_n_ctx(context),
            n_ctx_slot=embedding.n_input_max
            if embedding and embedding.whole
            else lib.llama_n_ctx_seq(context),
            n_ctx_train=lib.llama_model_n_ctx_train(model),
            n_vocab=lib.llama_vocab_n_tokens(vocab),
            n_embd=lib.llama_model_n_embd(model),
            n_slots=settings.n_parallel,
            chat_template=template.decode(errors="replace") if template else None,
            tools_template=with_tools.decode(errors="replace") if with_tools else None,
            bos_token=self._special(lib.llama_vocab_bos(vocab)),
            eos_token=self._special(lib.llama_vocab_eos(vocab)),
            add_bos=bool(lib.llama_vocab_get_add_bos(vocab)),
            n_gpu_layers=_layers_on_gpus(settings.n_gpu_layers, lib.llama_model_n_layer(model), self._placed),
            adapters=self._loras.facts,
            ftype=(lib.llama_ftype_name(lib.llama_model_ftype(model)) or b"").decode(errors="replace"),
            vocab_type=lib.llama_vocab_type(vocab),
            fim=FimTokens(
                prefix=lib.llama_vocab_fim_pre(vocab),
                suffix=lib.llama_vocab_fim_suf(vocab),
                middle=lib.llama_vocab_fim_mid(vocab),
                repository=lib.llama_vocab_fim_rep(vocab),
                separator=lib.llama_vocab_fim_sep(vocab),
            ),
            shifts=settings.context_shift and self.can_shift,
            n_embd_out=lib.llama_model_n_embd_out(model),
            generates=self._shape.generates,
            pooling=embedding.pooling if embedding else None,
            pair=pair_form(model),
        )

    def _special(self, token: int) -> str:
        return self._read_piece(token, special=True).decode(errors="replace") if token >= 0 else ""

    @staticmethod
    def _text(read: Callable[..., int], *args: Any) -> str:
        buffer = ctypes.create_string_buffer(256)
        read(*args, buffer, len(buffer))
        return buffer.value.decode(errors="replace")


def _short_calls() -> SimpleNamespace:
    """Functions of a microsecond, called with the GIL held."""
    library = ctypes.PyDLL(lib._lib._name)
    pointer, integer = ctypes.c_void_p, ctypes.c_int32

    def declare(name: str, result: Any, *arguments: Any) -> Any:
        function = library[name]
        function.restype, function.argtypes = result, arguments
        return function

    return SimpleNamespace(
        get_logits=declare("llama_get_logits", pointer, pointer),
        is_eog=declare("llama_vocab_is_eog", ctypes.c_bool, pointer, integer),
        set_embeddings=declare("llama_set_embeddings", None, pointer, ctypes.c_bool),
        token_to_piece=declare(
            "llama_token_to_piece", integer, pointer, integer, pointer, integer, integer, ctypes.c_bool
        ),
    )


def _load_model(settings: EngineSettings, placed: Placed, progress: Callable[[float], None]) -> Any:
    @lib.llama_progress_callback  # type: ignore[untyped-decorator]
    def report(value: float, _: object) -> bool:
        progress(value)
        return True

    params = lib.llama_model_default_params()
    params.n_gpu_layers = settings.n_gpu_layers
    params.load_mode = {
        (False, False): lib.LLAMA_LOAD_MODE_NONE,
        (True, False): lib.LLAMA_LOAD_MODE_MMAP,
        (False, True): lib.LLAMA_LOAD_MODE_MLOCK,
        (True, True): lib.LLAMA_LOAD_MODE_MMAP_MLOCK,
    }[settings.use_mmap, settings.use_mlock]
    params.progress_callback = report
    placed.apply(params)
    set_extra(params, settings, checks.EXTRA_MODEL)
    return lib.llama_model_load_from_file(os.fsencode(settings.path), params)


def _layers_on_gpus(asked: int, n_layers: int, placed: Placed) -> int:
    """The output layer counts as one more. -1 asks for all."""
    if not placed.handles:
        return 0
    return n_layers + 1 if asked < 0 else min(asked, n_layers + 1)
