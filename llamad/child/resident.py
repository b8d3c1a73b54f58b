"""The model of an instance, which may be released for a while and loaded again.

Routes and works keep one Resident for the life of the process; the engine behind it comes and goes. All but `tokenize`
and `detokenize` belongs to the event loop's thread. Only llama.cpp's own memory is at stake here, but that without any
guard: who reads a vocabulary that was just freed ends the process. So a model is taken away in two steps. `remove`, on
the loop's thread, makes sure that nobody finds it any more; what it returns frees the memory, and must run where no
call of `tokenize` can still be under way (`service.Service.aside`).
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from llamad.child.engine_thread import EngineThread
from llamad.engine import memory
from llamad.engine.adapters import by_default
from llamad.engine.breakdown import HOST, Share
from llamad.engine.budget import SHARE_DEFAULT
from llamad.engine.checks import check_adapters
from llamad.engine.engine import Engine
from llamad.engine.keeping import Keeping
from llamad.engine.llama import LlamaBackend
from llamad.engine.orders import SlotOrder
from llamad.engine.samplers import RULES_BYTES_PER_TOKEN
from llamad.engine.vocabulary import Adapters, EngineStats, ModelFacts, Output, Request, SlotView
from llamad.errors import LlamadError, UnavailableError

# An idle engine stops at once, unless somebody's rules are still being prepared whom nobody waits for any more.
SLEEP_WITHIN_S = 30.0
EXIT_WITHIN_S = 5.0
_NOTHING_DONE = EngineStats(*(0 for _ in fields(EngineStats)))
# Neither sums nor maxima: what is so at this moment.
_OF_NOW = ("slots_busy", "queued")
_MAXIMA = ("generating_max", "sequence_tokens_max")


@dataclass(frozen=True, slots=True)
class _Loaded:
    backend: LlamaBackend
    engine: Engine
    thread: EngineThread

    def end(self, within_s: float) -> bool:
        """Stop the engine and free the model; False, and nothing freed, if the engine does not stop."""
        self.engine.stop()
        self.thread.join(within_s)
        if self.thread.is_alive():
            return False
        self.backend.close()
        return True


class Resident:
    """Serves requests while a model is installed. `on_death` is called on the engine's thread when it dies."""

    def __init__(
        self,
        backend: LlamaBackend,
        deliver: Callable[[list[Output]], None],
        on_death: Callable[[], object],
        keeping: Keeping,
        prefill_budget: float = SHARE_DEFAULT,
    ) -> None:
        self.facts: ModelFacts = backend.facts
        self.default_adapters: Adapters = by_default(backend.facts.adapters)
        """Adapters for requests that do not say."""
        self._deliver = deliver
        self._on_death = on_death
        self._keeping, self._prefill_budget = keeping, prefill_budget
        self._done_before = _NOTHING_DONE
        self._loaded: _Loaded | None = None
        self.install(backend)

    @property
    def asleep(self) -> bool:
        """Whether there is no model."""
        return self._loaded is None

    @property
    def idle(self) -> bool:
        """Nothing runs, nothing waits."""
        stats = self.stats()
        return not stats.slots_busy and not stats.queued

    @property
    def failure(self) -> Exception | None:
        """What the engine has died of."""
        return self._loaded.thread.failure if self._loaded else None

    def install(self, backend: LlamaBackend) -> None:
        """Serve requests with this model from now on."""
        engine = Engine(backend, self._deliver, keeping=self._keeping, prefill_budget=self._prefill_budget)
        self.facts = backend.facts
        self._loaded = _Loaded(backend, engine, EngineThread(engine, self._on_death))
        # What is there now stays: to look through it for garbage would hold up every stream, for 20 ms each time.
        gc.freeze()
        self._loaded.thread.start()

    def remove(self) -> Callable[[], None]:
        """Serve nothing any more. Call what it returns to free the memory; it raises LlamadError if it cannot."""
        leaving = [self._awake()]
        self._done_before = self.stats()
        self._loaded = None

        def free() -> None:
            if not leaving.pop().end(SLEEP_WITHIN_S):
                raise LlamadError(
                    f"cannot sleep: the engine did not stop within {SLEEP_WITHIN_S:.0f} s", kind="engine-died"
                )
            _give_back()

        return free

    def close(self) -> None:
        """Free the model, if there is one, at the end of the process."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            loaded.end(EXIT_WITHIN_S)

    def held(self) -> dict[str, Share]:
        """What the process holds now, or has promised to, by device."""
        if self._loaded is not None:
            shares = memory.effective_bytes(self._loaded.backend)
            if self.facts.generates:
                rules = RULES_BYTES_PER_TOKEN * self.facts.n_vocab
                shares[HOST] += Share(prompts=self._keeping.ram_bytes, rules=rules)
            return shares
        return {HOST: Share(overhead=memory.resident_bytes("RssAnon"))}

    def submit(self, request: Request) -> None:
        """Engine.submit. Raises UnavailableError of kind `sleeping`."""
        if not isinstance(request, SlotOrder) and request.adapters is None:
            request = replace(request, adapters=self.default_adapters)
        self._awake().engine.submit(request)

    def cancel(self, id: int) -> None:
        """Engine.cancel."""
        if self._loaded is not None:
            self._loaded.engine.cancel(id)

    def adapt(self, adapters: Adapters) -> None:
        """Change the default, also for a model that is asleep. RequestError for adapters that there are none of."""
        error = check_adapters(adapters, self.facts)
        if error is not None:
            raise error
        self.default_adapters = adapters

    def stats(self) -> EngineStats:
        """Counters since the start of the process."""
        if self._loaded is None:
            return self._done_before
        return _summed(self._done_before, self._loaded.engine.stats())

    def slots(self) -> list[SlotView]:
        """Engine.slots; none while asleep."""
        return self._loaded.engine.slots() if self._loaded else []

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Engine.tokenize. Raises UnavailableError of kind `sleeping`."""
        return self._awake().engine.tokenize(text, add_special, parse_special)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Engine.detokenize. Raises UnavailableError of kind `sleeping`."""
        return self._awake().engine.detokenize(tokens)

    def piece(self, token: int) -> bytes:
        """LlamaBackend.piece. Raises UnavailableError of kind `sleeping`."""
        return self._awake().backend.piece(token)

    def control_token(self, text: str) -> int | None:
        """The control token that `text` is, if it is one, and does not end answers: such appear in no answer."""
        backend = self._awake().backend
        tokens = backend.tokenize(text, False, True)
        if len(tokens) != 1 or backend.piece(tokens[0]) or backend.is_eog(tokens[0]):
            return None
        return tokens[0]

    def _awake(self) -> _Loaded:
        if self._loaded is None:
            raise UnavailableError("cannot serve the request: the model is asleep", kind="sleeping")
        return self._loaded


def _summed(before: EngineStats, now: EngineStats) -> EngineStats:
    sums = {
        field.name: getattr(before, field.name) + getattr(now, field.name)
        for field in fields(EngineStats)
        if field.name not in _OF_NOW
    }
    sums |= {name: max(getattr(before, name), getattr(now, name)) for name in _MAXIMA}
    return EngineStats(**sums, slots_busy=now.slots_busy, queued=now.queued)


def _give_back() -> None:
    """Let the kernel have what has been freed: the allocator would keep it for a while (malloc_trim(3))."""
    gc.unfreeze()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
