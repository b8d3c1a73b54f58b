"""llamad.service from start to stop under a real systemd, with a real model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from tests.conftest import wait_until
from tests.systemd.conftest import URL, Service, preset

pytestmark = pytest.mark.systemd

STREAM = {"model": "smol", "messages": [{"role": "user", "content": "Tell me a story."}], "stream": True}


def test_active_means_that_the_public_port_answers(service: Service) -> None:
    service.systemctl("start")
    assert (
        service.box.run("curl", "-sS", "-w", "%{http_code}", "-o", "/dev/null", f"{URL}/health").stdout
        == "200"
    )
    assert service.state == "active"
    assert service.box.show("llamad.service", "StatusText")


def test_it_chats(service: Service) -> None:
    service.systemctl("start")
    answer = service.chat("smol")
    assert answer["choices"][0]["message"]["content"]
    assert service.models()["smol"]["status"]["value"] == "loaded"


def test_it_runs_unprivileged_and_shut_in(service: Service) -> None:
    service.systemctl("start")
    service.chat("smol")
    processes = service.processes()
    titles = [line.split(None, 2)[2] for line in processes]
    assert any("instance smol" in title for title in titles), titles
    for line in processes:
        status = (service.box.root / "proc" / line.split()[0] / "status").read_text()
        fields = dict(row.split(":\t", 1) for row in status.splitlines() if ":\t" in row)
        assert int(fields["CapEff"], 16) == 0
        assert int(fields["CapBnd"], 16) == 0
        assert fields["NoNewPrivs"] == "1"
        assert fields["Seccomp"] == "2"


def test_a_model_in_the_default_directory_is_found(service: Service) -> None:
    link = service.box.root / "var/lib/llamad/models/found.gguf"
    link.symlink_to("/srv/models/smollm2.gguf")
    try:
        service.systemctl("start")
        assert service.chat("found")["choices"][0]["message"]["content"]
    finally:
        link.unlink()


def test_a_reload_adds_a_model_and_leaves_the_others_alone(service: Service) -> None:
    service.systemctl("start")
    service.chat("smol")
    pid, main_pid = service.models()["smol"]["llamad"]["pid"], service.main_pid
    service.write_presets(preset("second"))
    service.systemctl("reload")
    # A reload is over when it is over: systemctl may return before (Type=notify).
    wait_until(lambda: "second" in service.models())
    wait_until(lambda: service.state == "active")
    assert service.models()["smol"]["llamad"]["pid"] == pid
    assert service.main_pid == main_pid
    assert service.chat("second")["choices"][0]["message"]["content"]


def test_a_reload_with_a_mistake_changes_nothing_and_names_file_and_line(service: Service) -> None:
    service.systemctl("start")
    service.chat("smol")
    service.write_presets(preset("second") + "no-such-option = 1\n")
    service.systemctl("reload", check=False)
    wait_until(lambda: "/etc/llamad/models.ini:12: cannot" in service.box.journal("-u", "llamad"))
    wait_until(lambda: service.state == "active")
    assert set(service.models()) >= {"smol"}
    assert "second" not in service.models()
    assert service.models()["smol"]["status"]["value"] == "loaded"


def test_a_restart_comes_back(service: Service) -> None:
    service.systemctl("start")
    service.chat("smol")
    before = {line.split()[0] for line in service.processes()}
    service.systemctl("restart")
    assert before.isdisjoint(line.split()[0] for line in service.processes())
    assert service.chat("smol")["choices"][0]["message"]["content"]


def test_a_stop_leaves_nothing(service: Service) -> None:
    service.systemctl("start")
    service.chat("smol")
    assert len(service.processes()) >= 4
    service.systemctl("stop")
    assert service.processes() == []
    assert not (service.box.root / "run/llamad").exists()
    assert service.box.show("llamad.service", "Result") == "success"
    assert service.box.show("llamad.service", "ExecMainStatus") == "0"


def test_the_main_process_killed_is_restarted_without_orphans(service: Service) -> None:
    service.systemctl("start")
    service.chat("smol")
    before = {line.split()[0] for line in service.processes()}
    service.box.run("kill", "-KILL", str(service.main_pid))
    wait_until(lambda: service.main_pid not in (0, *map(int, before)), within_s=15)
    wait_until(lambda: service.state == "active", within_s=30)
    assert before.isdisjoint(line.split()[0] for line in service.processes())
    assert service.chat("smol")["choices"][0]["message"]["content"]


def test_bad_configuration_is_said_and_not_tried_again(service: Service) -> None:
    drop_in = "/etc/systemd/system/llamad.service.d/bad.conf"
    service.box.write(drop_in, "[Service]\nEnvironment=LLAMA_ARG_PORT=none\n")
    try:
        service.box.run("systemctl", "daemon-reload")
        assert service.systemctl("start", check=False).returncode != 0
        assert service.state == "failed"
        assert service.box.show("llamad.service", "NRestarts") == "0"
        assert service.box.show("llamad.service", "ExecMainStatus") == "1"
        assert "cannot" in service.box.journal("-u", "llamad")
    finally:
        (service.box.root / drop_in.lstrip("/")).unlink()
        service.box.run("systemctl", "daemon-reload")


def test_the_socket_unit_starts_it_and_holds_the_port_through_a_restart(service: Service) -> None:
    service.systemctl("start", "llamad.socket")
    assert service.state == "inactive"
    assert service.chat("smol")["choices"][0]["message"]["content"]
    assert service.state == "active"
    service.box.run("systemctl", "restart", "--no-block", "llamad.service")
    assert service.chat("smol")["choices"][0]["message"]["content"]


def test_the_admin_socket_is_for_root_and_the_group(service: Service) -> None:
    box = service.box
    for user in ("llamad-operator", "llamad-stranger"):
        box.run("useradd", "--no-create-home", user)
    box.run("usermod", "-aG", "llamad", "llamad-operator")
    service.systemctl("start")
    for command in (
        box.run("llamactl", "status", "--json"),
        box.run_as("llamad-operator", "llamactl", "status", "--json"),
    ):
        assert json.loads(command.stdout)["daemon"]["pid"] == service.main_pid
    refused = box.run_as("llamad-stranger", "llamactl", "status", check=False)
    assert refused.returncode == 5, refused
    assert "cannot" in refused.stderr
    assert box.run("stat", "-c", "%U:%G %a", "/run/llamad/admin.sock").stdout.strip() == "llamad:llamad 660"
    assert box.run("stat", "-c", "%a", "/run/llamad/lease.sock").stdout.strip() == "600"


def test_a_hang_is_found_by_the_watchdog(service: Service) -> None:
    drop_in = "/etc/systemd/system/llamad.service.d/watchdog.conf"
    service.box.write(drop_in, "[Service]\nWatchdogSec=2\n")
    try:
        service.box.run("systemctl", "daemon-reload")
        service.systemctl("start")
        hung = service.main_pid
        service.box.run("kill", "-STOP", str(hung))
        wait_until(lambda: service.main_pid not in (0, hung), within_s=30)
        wait_until(lambda: service.state == "active", within_s=30)
        assert service.chat("smol")["choices"][0]["message"]["content"]
    finally:
        (service.box.root / drop_in.lstrip("/")).unlink()
        service.box.run("systemctl", "daemon-reload")


def test_a_stream_through_nginx_comes_token_by_token(service: Service) -> None:
    nginx = shutil.which("nginx", path=os.defpath + ":/usr/sbin:/usr/local/sbin")
    assert nginx, "cannot find nginx: scripts/test installs it (apt install nginx)"
    box = service.box
    sample = (box.root / "usr/share/doc/llamad/llamad.conf").read_text()
    box.run("sh", "-c", "rm -f /etc/nginx/sites-enabled/*")
    box.write("/etc/nginx/conf.d/llamad.conf", sample)
    service.systemctl("start")
    service.chat("smol")
    box.run("systemctl", "restart", "nginx")
    try:
        body = json.dumps({**STREAM, "max_tokens": 40, "ignore_eos": True})
        command = [
            "curl",
            "-sSN",
            "http://127.0.0.1/v1/chat/completions",
            "-H",
            "Content-Type: application/json",
            "-d",
            body,
        ]
        reader = subprocess.Popen(
            [*box.exec_prefix, *command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        with reader:
            assert reader.stdout
            sizes = [len(block) for block in iter(lambda: os.read(reader.stdout.fileno(), 1 << 20), b"")]
        assert reader.returncode == 0
        # One read a token, or nearly: nobody gathered them.
        assert len(sizes) > 20, sizes
    finally:
        box.run("systemctl", "stop", "nginx")
