"""Records what llama-server makes of the conversations, with every template here: `prompts.json` for test_prompts.

    python -m tests.api.record_prompts LLAMA_SERVER MODEL

MODEL is the SmolLM2 of the tests; its begin and end tokens are `BOS` and `EOS`. A conversation that is refused is null.
Templates that tell the date tell today's: the day of the recording is kept with the prompts.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import requests

from tests.api.chat_conversations import CONVERSATIONS

HERE = Path(__file__).parent
BOS, EOS = "<|im_start|>", "<|im_end|>"
START_WITHIN_S = 60


def record(server: str, model: str, template: Path) -> dict[str, str | None]:
    """The prompts of all conversations with one template."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [server, "-m", model, "--chat-template-file", str(template), "--port", str(port)]
    command += ["-c", "512", "-np", "1", "--no-warmup", "-t", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return {name: ask(port, body) for name, body in CONVERSATIONS.items()}
    finally:
        process.kill()
        process.wait()


def ask(port: int, body: dict[str, Any]) -> str | None:
    """The prompt of one conversation."""
    deadline = time.monotonic() + START_WITHIN_S
    while True:
        try:
            answer = requests.post(f"http://127.0.0.1:{port}/apply-template", json=body, timeout=30)
            if answer.status_code != 503:
                break
        except requests.ConnectionError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("llama-server does not answer")
        time.sleep(0.1)
    return str(answer.json()["prompt"]) if answer.ok else None


def main() -> None:
    server, model = sys.argv[1:]
    templates = sorted((HERE / "templates").glob("*.jinja"))
    prompts = {template.stem: record(server, model, template) for template in templates}
    document = {"date": datetime.now().strftime("%Y-%m-%d"), "prompts": prompts}
    text = json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True)
    (HERE / "prompts.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
