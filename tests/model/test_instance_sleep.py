"""Sleep and wake of a real instance: the memory really comes back, and so does the model."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from llamad.wire.child import HEARTBEAT_S, Sleep, Wake, encode
from tests.conftest import wait_until
from tests.model.test_instance_serving import STORY, Instance, loaded, open_post

pytestmark = pytest.mark.model

MIB = 1024 * 1024
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}


def sleep(instance: Instance) -> dict[str, Any]:
    instance.child.send(encode(Sleep()))
    return instance.child.wait_state("sleeping", 10)


def wake(instance: Instance) -> dict[str, Any]:
    instance.child.send(encode(Wake()))
    return instance.child.wait_state("ready", 30)


def metrics_of(instance: Instance) -> str:
    answer = requests.get(instance.url + "/metrics", headers=instance.headers, timeout=30)
    assert answer.headers["Process-Start-Time-Unix"].isdigit()
    return answer.text


def answers(instance: Instance) -> list[str]:
    """What it has said to orders so far, and at its start."""
    return [state for state in instance.child.states() if state != "loading"]


def rss_anonymous(instance: Instance) -> int:
    text = Path(f"/proc/{instance.child.process.pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", text)
    assert found
    return int(found[1]) * 1024


def title(instance: Instance) -> str:
    return " ".join(psutil.Process(instance.child.process.pid).cmdline()).strip()


@pytest.mark.parametrize(("model", "back_mib"), [("smollm2", 150), ("gemma", 300)])
def test_sleep_gives_memory_back_and_wake_takes_it_again(
    model: str, back_mib: int, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(model)
    with loaded(path, {"ctx-size": 4096, "parallel": 2, "temperature": 0}) as instance:
        body = {"prompt": STORY, "n_predict": 8, "cache_prompt": False}
        answer = instance.post("/completion", body)["content"]
        done = wait_until(lambda: [s for s in instance.child.stats() if s["requests_done"] == 1])[-1]
        before = instance.child.rss_mib()
        asleep = sleep(instance)
        after = instance.child.rss_mib()
        assert before - after > back_mib
        assert title(instance) == "llamad: instance tiny [sleeping]"
        assert asleep["bytes"]["host"] == pytest.approx(rss_anonymous(instance), abs=4 * MIB)
        assert asleep["bytes"]["host"] < 0.5 * instance.ready["bytes"]["host"]
        began = time.monotonic()
        ready = wake(instance)
        print(f"{model}: RSS {before:.0f} -> {after:.0f} MiB, awake in {time.monotonic() - began:.2f} s")
        assert {key: ready[key] for key in ("address", "n_ctx", "n_slots", "n_gpu_layers")} == {
            key: instance.ready[key] for key in ("address", "n_ctx", "n_slots", "n_gpu_layers")
        }
        assert ready["bytes"]["host"] == pytest.approx(instance.ready["bytes"]["host"], rel=0.05)
        assert title(instance) == "llamad: instance tiny [loaded]"
        assert instance.child.states()[-2:] == ["loading", "ready"]
        assert instance.post("/completion", body)["content"] == answer
        again = wait_until(lambda: [s for s in instance.child.stats() if s["requests_done"] == 2], 3)[-1]
        assert again["steps"] > done["steps"]


def test_asleep_reads_are_answered_and_work_is_refused(smollm2: Path) -> None:
    with loaded(smollm2, {"ctx-size": 512, "parallel": 2, "metrics": True}) as instance:
        instance.post("/v1/chat/completions", CHAT)
        props = instance.get("/props")
        assert props["is_sleeping"] is False
        sleep(instance)
        assert instance.get("/health") == {"status": "ok"}
        assert instance.get("/slots") == []
        assert "llamacpp:tokens_predicted_total 2\n" in metrics_of(instance)
        assert instance.get("/props") == props | {"is_sleeping": True}
        refused = [
            ("/v1/chat/completions", CHAT),
            ("/completion", {"prompt": [1, 2, 3]}),
            ("/completion", {"prompt": "x " * 5000}),
            ("/tokenize", {"content": "Hello"}),
            ("/tokenize", {"content": "Hello " * 5000, "with_pieces": True}),
            ("/detokenize", {"tokens": [1]}),
        ]
        for route, body in refused:
            assert instance.post(route, body, status=503)["error"]["kind"] == "sleeping"
        # Said twice is as good as once, and an instance that is awake need not be woken.
        assert sleep(instance)["bytes"]["host"] > 0
        wake(instance)
        assert wake(instance)["address"] == instance.ready["address"]
        instance.post("/v1/chat/completions", CHAT)


def test_orders_that_come_together_are_carried_out_in_order(smollm2: Path) -> None:
    with loaded(smollm2, {"ctx-size": 256, "parallel": 1}) as instance:
        instance.child.send(encode(Sleep()) + encode(Wake()) + encode(Sleep()) + encode(Wake()))
        wait_until(lambda: len(answers(instance)) == 5, 20)
        assert answers(instance) == ["ready", "sleeping", "ready", "sleeping", "ready"]
        instance.post("/v1/chat/completions", CHAT)


def test_an_instance_that_has_work_stays_awake(smollm2: Path) -> None:
    with loaded(smollm2, {"ctx-size": 1024, "parallel": 1}) as instance:
        body = {"prompt": STORY, "max_tokens": 900, "ignore_eos": True}
        with open_post(instance, "/completion", body):
            wait_until(lambda: instance.busy_slots() == 1)
            instance.child.send(encode(Sleep()))
            assert instance.child.wait_state("ready", 5)["address"] == instance.ready["address"]
            assert instance.busy_slots() == 1
            assert "sleeping" not in instance.child.states()


def test_sleep_does_not_pull_the_vocabulary_from_under_a_prompt(smollm2: Path) -> None:
    """Long texts are tokenised on a thread of their own while orders come in, their callers there or gone."""
    text = {"content": "The quick brown fox. " * 20_000}
    with loaded(smollm2, {"ctx-size": 256, "parallel": 1}) as instance:
        for _ in range(4):
            with open_post(instance, "/tokenize", text):
                pass
            statuses: list[int] = []
            caller = threading.Thread(target=lambda: statuses.append(status(instance, text)))  # noqa: B023
            caller.start()
            answered = len(answers(instance))
            instance.child.send(encode(Sleep()) + encode(Wake()))
            wait_until(lambda: len(answers(instance)) == answered + 2, 20)  # noqa: B023
            caller.join(20)
            assert statuses in ([200], [503])
        instance.post("/v1/chat/completions", CHAT)


def status(instance: Instance, body: dict[str, Any]) -> int:
    answer = requests.post(f"{instance.url}/tokenize", json=body, headers=instance.headers, timeout=30)
    return answer.status_code


def test_exit_in_mid_wake_ends_at_once(gemma: Path) -> None:
    with loaded(gemma, {"ctx-size": 512, "parallel": 1}) as instance:
        sleep(instance)
        instance.child.send(encode(Wake()))
        instance.child.wait_state("loading", 5)
        instance.child.ask_exit()
        assert instance.child.exit_status(1.0) == 0


def test_exit_while_asleep(smollm2: Path) -> None:
    with loaded(smollm2, {"ctx-size": 256, "parallel": 1}) as instance:
        sleep(instance)
        instance.child.ask_exit()
        assert instance.child.exit_status(5) == 0


def test_a_model_that_is_gone_fails_the_wake(smollm2: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(smollm2.read_bytes())
    with loaded(copy, {"ctx-size": 256, "parallel": 1}) as instance:
        sleep(instance)
        copy.unlink()
        instance.child.send(encode(Wake()))
        failure = instance.child.wait_state("failed", 10)
        assert (failure["kind"], failure["message"]) == (
            "bad-config",
            f"cannot load {copy}: there is no such file",
        )
        assert instance.child.exit_status(5) == 1


def test_a_busy_instance_whose_steps_stand_still_goes_on_saying_so(smollm2: Path) -> None:
    """One decode call of thousands of tokens takes longer than the time between two heartbeats."""
    options = {"ctx-size": 8192, "parallel": 1, "batch-size": 8192, "ubatch-size": 8192}
    with loaded(smollm2, options | {"threads": 1, "threads-batch": 1}) as instance:
        with open_post(instance, "/completion", {"prompt": "word " * 8000, "n_predict": 1}):
            busy = wait_until(lambda: [s for s in instance.child.stats() if s["slots_busy"]])[0]
            began = time.monotonic()
            wait_until(lambda: instance.child.stats().count(busy) >= 2, HEARTBEAT_S)
            assert time.monotonic() - began > 1.0
        instance.child.close_stdin()
        assert instance.child.exit_status(2.0) in (0, 1)
