"""The engine: one thread that turns requests into steps, and steps into outputs.

A step is: take the mail, give waiting requests to idle slots, plan a batch, decode it (one call for each set of
adapters), sample one token for every slot whose last token was in it, and more where a draft comes true, deliver
everything that came of it with one call. The decisions are made in the pure modules beside this one (`plan`, `prefix`,
`slot`, `text`, `sampling`, `speculation`); here they are only carried out, in order.

What can go wrong in a decode call, and whom it hurts:

* The memory is full: the pool makes room without ending anybody's request; if it cannot, the batch is halved, down to
  the single token that does not fit. Its request has filled the context alone, so its answer ends with `length`.
* It was interrupted, because all requests in it are cancelled: its slots start over from what the memory holds.
* The batch was refused: it is halved until the one request is found that llama.cpp does not take. That one fails.
* In both cases drafts are left out first.
* The computation failed: the requests in this batch fail, and what they had in the memory is dropped.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from llamad.engine import adapters, checks, plan
from llamad.engine.backend import Backend, Entry, Outcome
from llamad.engine.budget import SHARE_DEFAULT, Budget
from llamad.engine.counts import Counts
from llamad.engine.embed_turn import EmbedTurns
from llamad.engine.inbox import Inbox, Job
from llamad.engine.keeping import NOTHING, Keeping
from llamad.engine.narrow import Row
from llamad.engine.orders import SlotOrder
from llamad.engine.plan import Share
from llamad.engine.pool import Pool
from llamad.engine.samplers import Samplers
from llamad.engine.sampling import Choice
from llamad.engine.slot import Slot, State
from llamad.engine.speculation import Speculation
from llamad.engine.task import Task
from llamad.engine.views import Views
from llamad.engine.vocabulary import (
    SEED_RANDOM,
    Adapters,
    EmbedRequest,
    EngineStats,
    Failed,
    GenerateRequest,
    Likelihood,
    Likely,
    ModelFacts,
    Output,
    Progress,
    Request,
    SlotView,
    Text,
)
from llamad.engine.workshop import Workshop
from llamad.errors import LlamadError

log = logging.getLogger(__name__)

QUEUE_MAX = 256
_NOT_LAST = (Text, Progress)


class Engine:
    """Serves GenerateRequests on one backend.

    `deliver` gets the outputs of a whole step in one call on the engine's thread (a refusal by `submit` comes on the
    caller's thread); it must not block. All methods but `run` may be called from any thread.
    """

    def __init__(
        self,
        backend: Backend,
        deliver: Callable[[list[Output]], None],
        *,
        keeping: Keeping = NOTHING,
        prefill_budget: float = SHARE_DEFAULT,
        queue_max: int = QUEUE_MAX,
        clock: Callable[[], float] = time.perf_counter,
        draw_seed: Callable[[], int] = lambda: secrets.randbelow(SEED_RANDOM),
    ) -> None:
        """`keeping`: what to keep of prompts. `prefill_budget`: see `budget.Budget`.

        `queue_max`: requests that may wait beside those in slots.
        """
        self._backend = backend
        self._deliver = deliver
        self._clock = clock
        self._pool = Pool(backend, keeping)
        self._inbox = Inbox(backend.facts.n_slots + queue_max, backend.abort)
        self._counts = Counts()
        self._embedding = EmbedTurns(backend, self._inbox, self._pool.forget_idle, self._counts, clock)
        self._samplers = Samplers(backend, draw_seed)
        self._workshop = Workshop(self._prepare)
        self._outputs: list[Output] = []
        self._views = Views(backend.facts)
        self._adapters: Adapters = ()
        self._speculation = Speculation(backend.drafters, backend.n_drafted, backend.facts)
        self._drafts: Mapping[int, Sequence[int]] = {}
        self._budget = Budget(prefill_budget, backend.n_step)

    @property
    def facts(self) -> ModelFacts:
        """What is known of the loaded model."""
        return self._backend.facts

    def submit(self, request: Request) -> None:
        """Hand in a request. Its outputs come through `deliver`: Texts, then one Finished, Embedded or Failed.

        What is wrong with the request itself, or a full queue, is answered before this returns; rules that cannot be
        honoured are answered from the workshop's thread.
        """
        error = checks.check(request, self.facts)
        if error is None:
            if self._inbox.admit(request.id):
                self._bring_in(request)
                return
            error = checks.stopping() if self._inbox.closed else checks.queue_full(self._inbox.n_alive)
        self._inbox.count_refusal()
        self._deliver([Failed(request.id, error)])

    def cancel(self, id: int) -> None:
        """Drop a request at whatever stage it is. It gets no last word; an output on its way may still arrive."""
        self._inbox.cancel(id)

    def stop(self) -> None:
        """Make `run` return soon. Requests that are left fail with the kind `stopping`."""
        self._inbox.close()

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of a text. `add_special`: with the model's own BOS; `parse_special`: `<|...|>` are tokens."""
        return self._backend.tokenize(text, add_special, parse_special)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of token ids, control tokens included. RequestError for an id outside the vocabulary."""
        return self._backend.detokenize(tokens)

    def stats(self) -> EngineStats:
        """Counters, as of now."""
        counts, busy = self._counts, len(self._pool.busy) + self._embedding.n_busy
        return EngineStats(
            steps=counts.steps,
            decoded_tokens=counts.decoded_tokens,
            prompt_tokens=counts.prompt_tokens,
            cached_tokens=counts.cached_tokens,
            predicted_tokens=counts.predicted_tokens,
            requests_done=counts.done,
            requests_cancelled=counts.cancelled,
            requests_failed=counts.failed + self._inbox.n_refused,
            slots_busy=busy,
            queued=max(0, self._inbox.n_alive - busy),
            generating_max=counts.generating_max,
            busy_steps=counts.busy_steps,
            prompt_ms=counts.prompt_ms,
            predicted_ms=counts.predicted_ms,
            sequence_tokens_max=counts.sequence_tokens_max,
            drafts=counts.drafts,
            drafted_tokens=counts.drafted_tokens,
            accepted_tokens=counts.accepted_tokens,
        )

    def slots(self) -> list[SlotView]:
        """Each slot, as of now."""
        return self._views.of(self._pool.slots)

    def run(self) -> None:
        """The engine's thread: serve until `stop`. Sleeps without a timer while there is nothing to do."""
        try:
            while self.turn():
                pass
        finally:
            # After a fault, too, nobody may be left waiting. What is being prepared reads the vocabulary.
            self._inbox.close()
            self._workshop.close()
            self._give_up()

    def turn(self) -> bool:
        """One round of `run`: take the mail, do one step, deliver. Waits for mail when nothing is to be done."""
        mail = self._inbox.take(wait=self._pool.at_rest and self._embedding.at_rest)
        for job in mail.jobs:
            self._take_in(job)
        if mail.closed:
            return False
        if mail.cancelled:
            self._pool.cancel(mail.cancelled)
            self._embedding.cancel(mail.cancelled)
            self._pool.orders.cancel(mail.cancelled)
            self._counts.cancelled += len(mail.cancelled)
        self._outputs += self._pool.orders.turn()
        self._step()
        self._outputs += self._embedding.turn(bool(self._pool.busy), self._budget.n_beside)
        self._flush()
        return True

    def _bring_in(self, request: Request) -> None:
        if isinstance(request, GenerateRequest) and Workshop.is_for(request):
            self._workshop.put(request)
        else:
            self._inbox.post(Job(request))

    def _prepare(self, request: GenerateRequest) -> None:
        """On the workshop's thread."""
        if not self._inbox.wants(request.id) or self._inbox.closed:
            # If it is the engine that stops, what was let in and never came is answered in `_give_up`.
            return
        try:
            job = Job(request, self._samplers.make(request))
        except Exception as error:  # noqa: BLE001 - one request's rules must not end the thread that makes all others'
            self._turn_away(request.id, error)
        else:
            self._inbox.post(job)

    def _take_in(self, job: Job) -> None:
        request = job.request
        if isinstance(request, EmbedRequest):
            self._embedding.wait(request)
            return
        if isinstance(request, SlotOrder):
            self._pool.orders.wait(request)
            return
        try:
            task = Task(request, job.sampler or self._samplers.make(request), self.facts)
        except Exception as error:  # noqa: BLE001 - one request's fault must not end the instance
            self._turn_away(request.id, error)
        else:
            self._pool.wait(task)

    def _turn_away(self, id: int, error: Exception) -> None:
        """On any thread: a request that cannot be prepared."""
        self._inbox.end([id])
        self._inbox.count_refusal()
        self._deliver([Failed(id, checks.as_failure(error))])

    def _step(self) -> None:
        """Evaluate what one plan says, in as many decode calls as the memory makes necessary."""
        if not self._embedding.blocked:
            self._pool.start()
        now = self._clock()
        self._pool.shift()
        for slot in self._pool.open(self._counts.steps, now):
            self._say(slot.task.progress(len(slot.cached), now))
        if self._backend.drafters:
            self._drafts = self._speculation.drafts(self._pool.busy, self._pool.n_free)
        step = plan.plan(self._pool.needs(self._drafts), self._backend.n_step, self._budget.n_beside)
        batches = deque(adapters.apart(step, lambda share: self._slot(share).task.adapters, self._adapters))
        while batches:
            batch = [share for share in batches.popleft() if self._pool.is_current(share)]
            if batch:
                batches.extendleft(reversed(self._evaluate(batch)))

    def _evaluate(self, batch: list[Share]) -> Sequence[list[Share]]:
        """One decode call and what follows from it; the batches to evaluate instead, if it could not be done."""
        outcome = self._decode(batch)
        if outcome in (Outcome.FULL, Outcome.INVALID) and (certain := plan.without_drafts(batch)):
            return [certain]
        match outcome:
            case Outcome.DONE:
                self._advance(batch)
            case Outcome.ABORTED:
                for share in batch:
                    self._slot(share).restart()
            case Outcome.FULL if self._embedding.give_way() or self._pool.make_room():
                return [batch]
            case Outcome.FULL | Outcome.INVALID:
                return plan.halves(batch) or self._refused(batch[0], outcome)
            case Outcome.BROKEN:
                for share in batch:
                    self._fail(self._slot(share), checks.decode_failed("the computation failed"))
        return ()

    def _decode(self, batch: list[Share]) -> Outcome:
        tasks = [self._slot(share).task for share in batch]
        entries = [self._entry(share, task) for share, task in zip(batch, tasks, strict=True)]
        if not self._inbox.enter([task.id for task in tasks]):
            return Outcome.ABORTED
        try:
            self._adapters = tasks[0].adapters
            self._backend.apply(self._adapters)
            began = self._clock()
            outcome = self._backend.decode(entries)
            if outcome is Outcome.DONE:
                self._learn(batch, self._clock() - began)
            return outcome
        finally:
            self._inbox.leave()
            self._backend.rearm()

    def _learn(self, batch: list[Share], seconds: float) -> None:
        """What was in a batch, and how long it took."""
        n_tokens = n_streams = n_drafted = 0
        for share in batch:
            n_tokens += share.count
            n_drafted += share.n_drafted
            n_streams += self._slot(share).state is State.GENERATING
        self._budget.learn(seconds, n_tokens - n_streams, n_streams)
        self._counts.step(len(batch), n_tokens - n_streams, n_streams, n_drafted)

    def _entry(self, share: Share, task: Task) -> Entry:
        tokens = task.tokens[share.start : share.start + share.count]
        tokens += self._draft(share)
        return Entry(share.slot, share.start, tokens, share.n_drafted + 1 if share.logits else 0)

    def _draft(self, share: Share) -> Sequence[int]:
        return self._drafts[share.slot][: share.n_drafted] if share.n_drafted else ()

    def _advance(self, batch: list[Share]) -> None:
        """The batch is in the memory: move its slots, sample where it was asked for."""
        row = 0
        for share in batch:
            slot = self._slot(share)
            self._pool.advance(slot, share.count)
            if slot.task.request.tell_progress:
                self._say(slot.task.progress(len(slot.cached), self._clock()))
            if share.n_drafted:
                self._verify(slot, row, self._draft(share))
            elif slot.state is State.DONE_PROMPT:
                self._sample_family(slot, self._backend.logits(row))
            elif share.logits:
                self._sample(slot, self._backend.logits(row))
            row += share.logits + share.n_drafted

    def _sample_family(self, slot: Slot[Task], row: Row) -> None:
        """Sample for the slot, and for the siblings that have waited for the end of its prompt."""
        siblings = self._pool.follow(slot, self._clock())
        # Sampling changes the row.
        rows = [row.copy() for _ in siblings]
        self._sample(slot, row)
        for sibling, copy in zip(siblings, rows, strict=True):
            self._sample(sibling, copy)

    def _verify(self, slot: Slot[Task], row: int, draft: Sequence[int]) -> None:
        """Sample for what a draft follows on, and for each token of it as long as it comes true; take back the rest."""
        task, n_before = slot.task, slot.task.n_accepted
        task.n_drafted += len(draft)
        for offset, drafted in enumerate((*draft, None)):
            if not self._sample(slot, self._backend.logits(row + offset), drafted) or slot.idle:
                break
            slot.advance(1)
        n_accepted = task.n_accepted - n_before
        if n_accepted < len(draft) or slot.idle:
            self._pool.take_back(slot)
        self._speculation.judge(slot.id, len(draft), n_accepted)
        self._counts.judge(len(draft), n_accepted)

    def _sample(self, slot: Slot[Task], row: Row, drafted: int | None = None) -> bool:
        """The next token of the slot's request; whether it is what was drafted."""
        task, backend = slot.task, self._backend
        if task.request.max_tokens == 0:
            self._say(task.end("length", self._clock()))
            self._finish(slot)
            return False
        try:
            choice = task.sampler.sample(row)
        except LlamadError as error:
            self._fail(slot, error)
            return False
        token, now = choice.token, self._clock()
        slot.sample()
        likelihood = self._likelihood(task, choice)
        task.n_accepted += token == drafted
        self._say(task.take(token, backend.piece(token), backend.is_eog(token), now, likelihood))
        self._counts.predicted_tokens += 1
        if task.reason is not None:
            self._finish(slot)
        return token == drafted

    def _likelihood(self, task: Task, choice: Choice) -> Likelihood | None:
        wanted, ranked, piece = task.request.wanted, choice.ranked, self._backend.piece
        if wanted is None or ranked is None:
            return None
        top = tuple(Likely(id, piece(id), value) for id, value in ranked.top)
        return Likelihood(choice.token, piece(choice.token), ranked.value, top, wanted.after_sampling)

    def _refused(self, share: Share, outcome: Outcome) -> Sequence[list[Share]]:
        """A single token that cannot be evaluated, with nothing left to give way."""
        slot = self._slot(share)
        if outcome is Outcome.INVALID:
            self._fail(slot, checks.decode_failed("llama.cpp refuses this input"))
        elif slot.task.n_predicted == 0:
            self._fail(slot, checks.context_full(len(slot.task.tokens), share.start))
        else:
            self._say(slot.task.cut(self._clock()))
            self._finish(slot)
        return ()

    def _finish(self, slot: Slot[Task]) -> None:
        self._views.remember(slot)
        task = slot.release()
        finished, counts = task.finished(self._clock()), self._counts
        self._outputs.append(finished)
        counts.done += 1
        counts.cached_tokens += task.n_cached
        counts.prompt_ms += finished.timings.prompt_ms
        counts.predicted_ms += finished.timings.predicted_ms
        counts.sequence_tokens_max = max(counts.sequence_tokens_max, len(task.tokens))

    def _fail(self, slot: Slot[Task], error: LlamadError) -> None:
        task = self._pool.evict(slot)
        self._outputs.append(Failed(task.id, error))
        self._counts.failed += 1

    def _give_up(self) -> None:
        self._flush()
        self._pool.drain()
        self._embedding.drain()
        self._inbox.take(wait=False)
        left = self._inbox.alive()
        self._counts.failed += len(left)
        self._outputs += [Failed(id, checks.stopping()) for id in left]
        self._flush()

    def _say(self, output: Text | Progress | None) -> None:
        if output is not None:
            self._outputs.append(output)

    def _flush(self) -> None:
        outputs, self._outputs = self._outputs, []
        ended = [output.id for output in outputs if not isinstance(output, _NOT_LAST)]
        if ended:
            self._inbox.end(ended)
        if outputs:
            self._deliver(outputs)

    def _slot(self, share: Share) -> Slot[Task]:
        return self._pool.slots[share.slot]
