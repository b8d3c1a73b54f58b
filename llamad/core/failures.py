"""Failures: what is said when a process dies unasked, and how long its model is then left alone."""

from __future__ import annotations

from llamad.core.events import ChildExited
from llamad.core.model import Failure, Model, exit_words
from llamad.core.policy import STABLE_AFTER_S, pause_s
from llamad.core.refusals import device_numbers
from llamad.core.state import Refusal, SchedulerState

OUT_OF_MEMORY = "out-of-memory"
RETRIES_MAX = 1
NEED_GROWTH = 1.15
"""A load that ran out of memory needs more than was measured: book this much more for the one retry."""
TAIL_CHARS_MAX = 300
SIGKILL = 9


def book_failure(s: SchedulerState, model: Model, event: ChildExited, now: float, *, served: bool) -> str:
    """Book a failure, refuse those who waited for the load, and return the words for it."""
    process = f"the process of {model.name!r} {exit_words(event.exit_code, event.signal)}"
    kind, message = _reason(s, model, event, process, served=served)
    if not served and kind == OUT_OF_MEMORY and _retry(s, model, message):
        return message
    lived_s = now - (model.loaded_at or now) if served else 0.0
    count = 1 if model.failure is None or lived_s >= STABLE_AFTER_S else model.failure.count + 1
    pause = pause_s(count, served=served)
    model.failure = Failure(kind, message, count, now + pause)
    model.reason = message
    s.note("failed", model.name, message, failure=kind, failures=count, pause_s=pause)
    model.ordered = False
    model.out_of_memory = 0
    model.evict_one_more = False
    if not served or pause > 0:
        s.refuse_waiters(model, load_failed(s, model, now))
    if not model.wanted:
        s.queue.leave(model.name)
    return process


def _reason(
    s: SchedulerState, model: Model, event: ChildExited, process: str, *, served: bool
) -> tuple[str, str]:
    """Kind and message, the process's own if it had a last word."""
    if model.last_word is not None:
        return model.last_word
    # Who is killed by a signal has had no last word: what stands in its log is about something else.
    words = _last_line(event.tail) if event.signal is None else ""
    tail = f"; its last words: {words}" if words else ""
    if served:
        return "instance-died", process + tail
    if event.signal == SIGKILL and s.ledger.margin is not None:
        # Nobody here has sent it: while memory is being taken, that is the kernel's out-of-memory killer.
        return (
            OUT_OF_MEMORY,
            f"cannot load {model.name!r}: {process}, as the kernel does when memory runs out{tail}",
        )
    return "load-failed", f"cannot load {model.name!r}: {process}{tail}"


def _last_line(tail: str) -> str:
    """The last line that says something, cut at its end if need be."""
    line = next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")
    return line if len(line) <= TAIL_CHARS_MAX else line[: TAIL_CHARS_MAX - 1] + "…"


def _numbers(s: SchedulerState, model: Model, failure: Failure) -> dict[str, object]:
    return device_numbers(s, model.least) if model.least and failure.kind == OUT_OF_MEMORY else {}


def _retry(s: SchedulerState, model: Model, message: str) -> bool:
    """Once, with a corrected need, after one more model has made room; pointless when there is nobody to make any."""
    others = any(other.name != model.name for other in s.residents())
    if model.out_of_memory >= RETRIES_MAX or not others or not model.wanted:
        return False
    model.out_of_memory += 1
    model.evict_one_more = True
    model.reason = message
    s.note("retry", model.name, f"{message}; one more model leaves, then it is tried once more")
    return True


def load_failed(s: SchedulerState, model: Model, now: float) -> Refusal:
    """The answer to those who want a model that could not be loaded; of memory it says what is needed and what there is."""
    failure = model.failure
    assert failure is not None
    return Refusal(
        failure.kind if failure.kind != "instance-died" else "load-failed",
        503,
        failure.message
        if failure.message.startswith("cannot")
        else f"cannot load {model.name!r}: {failure.message}",
        retry_after_s=max(0.0, failure.retry_at - now),
        details={"failures": failure.count, **_numbers(s, model, failure)},
    )
