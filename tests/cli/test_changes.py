"""load, unload, reload: asked once, waited for, reported one by one."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import time

from llamad.errors import RequestError
from tests.cli.conftest import BOUND_S, Run, Start
from tests.cli.fake_daemon import FakeDaemon, FakeModel
from tests.conftest import wait_until

COLD = "ggml-org/gemma-3:Q4_K_M"


def test_load_waits_for_the_end_state(daemon: FakeDaemon, llamactl: Run) -> None:
    result = llamactl("load", COLD)
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(rf"{COLD}: loaded \(\d+ ms\)\n", result.stdout)
    assert daemon.posts("/models/load") == [{"model": COLD, "wait": True}]
    assert daemon.models[COLD].state == "loaded"


def test_off_a_terminal_nothing_is_polled(daemon: FakeDaemon, llamactl: Run) -> None:
    llamactl("load", COLD)
    assert [method for method, _, _ in daemon.asked] == ["POST"]


def test_no_wait_only_asks(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.models[COLD].go.clear()
    result = llamactl("load", COLD, "--no-wait")
    assert (result.returncode, result.stdout) == (0, f"{COLD}: loading\n")
    assert daemon.posts("/models/load") == [{"model": COLD, "wait": False}]


def test_a_load_that_fails(daemon: FakeDaemon, llamactl: Run) -> None:
    result = llamactl("load", "broken")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == "llamactl: cannot load 'broken': the file ends after 12 bytes\n"


def test_several_are_each_reported_and_one_failure_is_enough(daemon: FakeDaemon, llamactl: Run) -> None:
    result = llamactl("load", "broken", "nope", COLD)
    assert result.returncode == 1
    assert result.stdout.startswith(f"{COLD}: loaded")
    assert result.stderr.splitlines() == [
        "llamactl: cannot load 'broken': the file ends after 12 bytes",
        "llamactl: cannot find model 'nope'; 'llamactl list' shows all",
    ]
    assert [body["model"] for body in daemon.posts("/models/load")] == ["broken", "nope", COLD]


def test_unload_waits_for_running_requests_and_force_does_not(
    daemon: FakeDaemon, start: Start, llamactl: Run
) -> None:
    daemon.models["smollm2"].go.clear()
    patient = start("unload", "smollm2")
    wait_until(lambda: daemon.posts("/models/unload"))
    assert patient.poll() is None
    forced = llamactl("unload", "smollm2", "--force")
    assert forced.returncode == 0
    assert forced.stdout.startswith("smollm2: unloaded (")
    daemon.models["smollm2"].go.set()
    out, err = patient.communicate(timeout=BOUND_S)
    assert (patient.returncode, err) == (0, "")
    assert out.startswith("smollm2: unloaded (")
    assert daemon.posts("/models/unload") == [
        {"model": "smollm2", "wait": True},
        {"model": "smollm2", "force": True, "wait": True},
    ]


def test_a_model_that_somebody_loads_again_at_once(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.models["smollm2"].state_after_unload = "loading"
    assert re.fullmatch(r"smollm2: unloaded \(.*\), now loading\n", llamactl("unload", "smollm2").stdout)


def test_unload_all_takes_what_is_in_memory(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.models["dozing"] = FakeModel("dozing", state="sleeping")
    daemon.models["coming"] = FakeModel("coming", state="downloading")
    result = llamactl("unload", "--all")
    assert result.returncode == 0
    assert [body["model"] for body in daemon.posts("/models/unload")] == ["smollm2", "dozing"]


def test_unload_all_of_nothing_is_fine(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.models["smollm2"].state = "unloaded"
    result = llamactl("unload", "--all")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "llamactl: no model is loaded\n")


def test_reload_prints_the_difference(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.reload_answer = {
        "success": True,
        "added": ["a", "b"],
        "changed": ["c"],
        "removed": [],
        "unchanged": 3,
        "restart_needed": ["port"],
    }
    assert llamactl("reload").stdout.splitlines() == [
        "added               a, b",
        "changed             c",
        "unchanged           3",
        "restart needed for  port",
    ]


def test_a_bad_reload_prints_every_problem(daemon: FakeDaemon, llamactl: Run) -> None:
    problems = [
        {
            "file": "/etc/llamad/models.ini",
            "line": 12,
            "message": "cannot use 'x': unknown option",
            "model": "a",
        },
        {"file": "/etc/llamad/models.ini", "line": 0, "message": "cannot read it", "model": ""},
    ]
    daemon.reload_answer = RequestError(
        "cannot reload: 2 problems, nothing has changed", details={"problems": problems}
    )
    result = llamactl("reload")
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "llamactl: cannot reload: 2 problems, nothing has changed",
        "  /etc/llamad/models.ini:12: cannot use 'x': unknown option",
        "  /etc/llamad/models.ini: cannot read it",
    ]


def test_ctrl_c_leaves_the_load_to_the_daemon(daemon: FakeDaemon, start: Start) -> None:
    daemon.models[COLD].go.clear()
    process = start("load", COLD, "smollm2")
    wait_until(lambda: daemon.posts("/models/load"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out) == (130, "")
    assert err == f"llamactl: stopped waiting: llamad goes on loading '{COLD}'\n"
    assert daemon.models[COLD].state == "loading"
    assert len(daemon.posts("/models/load")) == 1


class Terminal:
    """The far end of a terminal on which a command writes its stderr."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.text = ""

    def read_until(self, pattern: str) -> None:
        deadline = time.monotonic() + BOUND_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.text!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65536).decode()

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)


def test_a_bar_on_a_terminal_and_the_outcome_from_the_post(daemon: FakeDaemon, start: Start) -> None:
    daemon.models[COLD].go.clear()
    terminal = Terminal()
    try:
        process = start("load", COLD, stderr=terminal.slave)
        terminal.read_until(rf"loading {COLD}")
        daemon.models[COLD].progress = 0.42
        terminal.read_until("42%")
        daemon.models[COLD].go.set()
        out, _ = process.communicate(timeout=BOUND_S)
    finally:
        terminal.close()
    assert process.returncode == 0
    assert out.startswith(f"{COLD}: loaded")
    assert len(daemon.posts("/models/load")) == 1


def test_a_failure_under_the_bar(daemon: FakeDaemon, start: Start) -> None:
    terminal = Terminal()
    try:
        process = start("load", "broken", stderr=terminal.slave)
        terminal.read_until("the file ends after 12 bytes")
        process.communicate(timeout=BOUND_S)
    finally:
        terminal.close()
    assert process.returncode == 1


def test_ctrl_c_under_the_bar(daemon: FakeDaemon, start: Start) -> None:
    daemon.models[COLD].go.clear()
    terminal = Terminal()
    try:
        process = start("load", COLD, stderr=terminal.slave)
        terminal.read_until(rf"loading {COLD}")
        process.send_signal(signal.SIGINT)
        terminal.read_until("llamad goes on loading")
        process.communicate(timeout=BOUND_S)
    finally:
        terminal.close()
    assert process.returncode == 130


def test_the_daemon_goes_away_while_one_waits(daemon: FakeDaemon, start: Start) -> None:
    daemon.models[COLD].go.clear()
    daemon.hang_up_on = COLD
    process = start("load", COLD, "smollm2")
    wait_until(lambda: daemon.posts("/models/load"))
    daemon.models[COLD].go.set()
    _, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == 3
    assert "it closed the connection" in err
    assert len(daemon.posts("/models/load")) == 1


def test_nothing_to_do_is_said_as_such(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.already = True
    assert llamactl("load", "smollm2").stdout == "smollm2: was loaded already\n"
    assert llamactl("unload", COLD).stdout == f"{COLD}: was not loaded\n"


def test_hints_are_for_people_and_json_is_the_daemons(daemon: FakeDaemon, llamactl: Run) -> None:
    result = llamactl("load", "nosuch", "--json")
    assert json.loads(result.stdout)["error"]["message"] == "cannot find model 'nosuch'"
    assert "'llamactl list' shows all" in result.stderr
