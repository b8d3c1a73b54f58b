"""What the routes of an instance have in common: the model that is served, and how to have it do something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, TypeVar

from llamad.api.conversation import Conversation
from llamad.api.generation import Generation
from llamad.api.prompts import Prompt, prompt_chars, prompt_tokens
from llamad.api.turn import Turn
from llamad.child.chat import Chat
from llamad.child.embed_work import EmbedWork
from llamad.child.one_work import OneWork
from llamad.child.thoughts import Thoughts
from llamad.child.work import Dispatcher, Submitter, Work
from llamad.child.worker import Worker
from llamad.engine.vocabulary import Adapters, EngineStats, ModelFacts, SlotView
from llamad.errors import RequestError

T = TypeVar("T")

# Tokenising costs about a microsecond a character: longer texts go to a thread, so that streams go on.
INLINE_CHARS_MAX = 2048
# Templates and rules cost as much for so many bytes of a request as tokenising does for a character.
PLANNED_BYTES = 32
# No vocabulary puts more than 64 characters (blanks) into a token on average. What is longer by far cannot fit the
# context and is refused without the seconds that tokenising it would take.
TOKEN_CHARS_MAX = 128


class ServingEngine(Submitter, Protocol):
    """What the routes need of the engine."""

    @property
    def facts(self) -> ModelFacts: ...

    @property
    def asleep(self) -> bool: ...

    @property
    def idle(self) -> bool: ...

    @property
    def default_adapters(self) -> Adapters: ...

    def adapt(self, adapters: Adapters) -> None: ...

    def stats(self) -> EngineStats: ...

    def slots(self) -> list[SlotView]: ...

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]: ...

    def detokenize(self, tokens: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """What the served model is called, and by whom it is served."""

    name: str
    path: str
    build: str


class Service:
    """One loaded model behind the routes. Belongs to the event loop's thread."""

    def __init__(
        self,
        engine: ServingEngine,
        dispatcher: Dispatcher,
        identity: Identity,
        chat: Chat,
        defaults: Generation,
    ) -> None:
        self.engine = engine
        self.identity = identity
        self.chat = chat
        self.defaults = defaults
        self.facts = engine.facts
        self.thoughts = Thoughts()
        self._dispatcher = dispatcher
        self._worker = Worker()

    @property
    def n_vocab(self) -> int:
        """Token ids are 0 to this, exclusive."""
        return self.facts.n_vocab

    @property
    def n_ctx(self) -> int:
        """Tokens that one request may have, its answer included."""
        return self.facts.n_prompt_max

    @property
    def idle(self) -> bool:
        """No request has the engine or the worker do anything, or is about to."""
        return self._worker.idle and self.engine.idle

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        """Token ids of a short text; long ones go through `aside`."""
        return tuple(self.engine.tokenize(text, add_special, parse_special))

    async def prompt_tokens(self, prompt: Prompt, *, behind: bool = False) -> tuple[int, ...]:
        """Token ids of a prompt; `behind`: see `aside`. Raises RequestError for one that cannot fit the context."""
        chars, n_ctx = prompt_chars(prompt), self.n_ctx
        if chars > n_ctx * TOKEN_CHARS_MAX:
            raise RequestError(
                f"cannot fit a prompt of {chars} characters: it exceeds the available context size of {n_ctx} tokens",
                kind="exceed-context-size",
                details={"n_prompt_chars": chars, "n_ctx": n_ctx},
            )
        return await self.aside(chars, lambda: prompt_tokens(prompt, self), behind=behind)

    async def turn(self, body: bytes, conversation: Conversation, generation: Generation) -> Turn:
        """Chat.turn for the conversation of a request with this body."""
        return await self.aside(len(body) // PLANNED_BYTES, lambda: self.chat.turn(conversation, generation))

    async def prompt(self, body: bytes, conversation: Conversation) -> str:
        """Chat.prompt for the conversation of a request with this body, which asks for no generation."""
        return await self.aside(
            len(body) // PLANNED_BYTES, lambda: self.chat.prompt(conversation), behind=True
        )

    async def aside(self, chars: int, call: Callable[[], T], *, behind: bool = False) -> T:
        """Do what takes time in proportion to `chars`: at once if they are few, else off the event loop.

        `behind`: it is no part of a generation, so it waits for those that are, and for shorter ones of its kind.
        """
        if chars <= INLINE_CHARS_MAX or self.engine.asleep:
            return call()
        return await self._worker.do(call, weight=chars if behind else 0)

    async def on_worker(self, call: Callable[[], T]) -> T:
        """Do what takes long on a thread that does one thing at a time.

        That is what makes it safe to free a model there: a job whose request was cancelled goes on to its end, and
        may be reading the vocabulary.
        """
        return await self._worker.do(call)

    def begin(self, cleanup: ExitStack, generation: Generation, prompts: Sequence[tuple[int, ...]]) -> Work:
        """Have the engine generate, a sequence for each prompt, until `cleanup` is run."""
        work = Work(self.engine, self._dispatcher)
        cleanup.callback(work.close)
        work.start(generation, prompts)
        return work

    def one_work(self, cleanup: ExitStack) -> OneWork:
        """A request with one answer, until `cleanup` is run."""
        work = OneWork(self.engine, self._dispatcher)
        cleanup.callback(work.close)
        return work

    def embed_work(self, cleanup: ExitStack) -> EmbedWork:
        """A request for vectors, until `cleanup` is run."""
        work = EmbedWork(self.engine, self._dispatcher)
        cleanup.callback(work.close)
        return work

    def close(self) -> None:
        """Let go of the thread."""
        self._worker.close()
