"""The unit files themselves: what systemd thinks of them."""

from __future__ import annotations

import json

import pytest

from tests.systemd.conftest import Box

pytestmark = pytest.mark.systemd

EXPOSURE_MAX = 2.0
"""`systemd-analyze security` counts from 0 (nothing exposed) to 10; below 2 it is content."""


def test_systemd_finds_nothing_to_say_about_them(box: Box) -> None:
    units = [f"/usr/lib/systemd/system/llamad.{kind}" for kind in ("service", "socket")]
    done = box.run("systemd-analyze", "--man=no", "verify", *units)
    assert done.stdout + done.stderr == ""


def test_the_service_is_hardly_exposed(box: Box) -> None:
    done = box.run("systemd-analyze", "security", "--json=short", "--no-pager", "llamad.service")
    rows = json.loads(done.stdout)
    assert rows
    worst = [f"{row['name']}: {row['exposure']}" for row in rows if float(row["exposure"] or 0) > 0.2]
    overall = box.run("systemd-analyze", "security", "--no-pager", "llamad.service").stdout.splitlines()[-1]
    assert float(overall.split(":")[1].split()[0]) < EXPOSURE_MAX, f"{overall}\n{worst}"


def test_the_installation_can_be_repeated_and_keeps_configuration(box: Box) -> None:
    box.write("/etc/llamad/llamad.ini.kept", "")
    before = (box.root / "etc/llamad/llamad.ini").read_text() + "# mine\n"
    box.write("/etc/llamad/llamad.ini", before)
    done = box.run("/srv/llamad/scripts/install")
    assert "keeping your /etc/llamad/llamad.ini" in done.stdout
    assert (box.root / "etc/llamad/llamad.ini").read_text() == before
    assert box.run("stat", "-c", "%U:%G %a", "/var/lib/llamad/models").stdout.strip() == "llamad:llamad 775"


def test_shells_find_their_completions(box: Box) -> None:
    share = box.root / "usr/share"
    assert "_LLAMACTL_COMPLETE=bash_complete" in (share / "bash-completion/completions/llamactl").read_text()
    assert (share / "zsh/site-functions/_llamactl").read_text().startswith("#compdef llamactl")
    assert (
        "_LLAMACTL_COMPLETE=fish_complete" in (share / "fish/vendor_completions.d/llamactl.fish").read_text()
    )
