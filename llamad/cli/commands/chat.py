"""llamactl chat: talk to a model over the public port, as any client would."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import click

from llamad.cli.client import AdminClient, Document
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.names import ModelName, asking_about
from llamad.cli.output import print_line_document, report_error
from llamad.cli.public import PublicPort, choose_listener
from llamad.cli.text import printable
from llamad.errors import LlamadError

PROMPT = "> "


@click.command()
@click.argument("model", type=ModelName())
@click.option("--once", metavar="TEXT", help="Ask this, print the answer, and leave.")
@click.option("--system", metavar="TEXT", help="System message to begin with.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer, in tokens.")
@click.option("--temperature", type=click.FloatRange(min=0), help="Sampling temperature; 0 is greedy.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the sampling, for answers that repeat.")
@click.option(
    "--api-key",
    metavar="KEY",
    envvar=["LLAMAD_API_KEY", "LLAMA_API_KEY"],
    default="",
    help="Key of the public port; better from the environment (LLAMAD_API_KEY), where no other user sees it.",
)
@admin_options
@click.pass_obj
def chat(
    invocation: Invocation,
    /,
    model: str,
    once: str | None,
    system: str | None,
    api_key: str,
    **wishes: int | float | None,
) -> None:
    """Chat with MODEL over the public port.

    It is loaded if it is not. Ctrl-C stops an answer, Ctrl-D ends the chat. With --once, or when stdin is no
    terminal (all of it is the question then), there is one question and one answer. With --json the chunks of the
    stream are printed, one a line.
    """
    admin = invocation.client()
    port = _public_port(admin, api_key)
    parameters = {name: value for name, value in wishes.items() if value is not None}
    talk = Talk(admin, port, {"model": model, **parameters}, as_json=invocation.json)
    if system:
        talk.messages.append({"role": "system", "content": system})
    if once is None and not sys.stdin.isatty():
        once = sys.stdin.read()
    if once is not None:
        talk.ask(once)
    else:
        _converse(talk)


@dataclass
class Talk:
    """The messages so far, and how to get the next one."""

    admin: AdminClient
    port: PublicPort
    request: Document
    as_json: bool
    messages: list[Document] = field(default_factory=list)
    thinking: bool = False

    def ask(self, text: str) -> None:
        """Print the answer as it comes, and remember it. What Ctrl-C leaves of it is remembered, too."""
        self.messages.append({"role": "user", "content": text})
        self.thinking = False
        answer: list[str] = []
        try:
            with (
                _naming_the_key(),
                asking_about(self.admin, self.request["model"]),
                closing(self._chunks()) as chunks,
            ):
                for chunk in chunks:
                    # Remembered before it is shown, so that no moment for Ctrl-C lies between the two.
                    answer.append(_said(chunk, "content"))
                    self._show(chunk)
        finally:
            self._end_answer(answer)

    def _chunks(self) -> Generator[Document, None, None]:
        return self.port.chat({**self.request, "messages": self.messages})

    def _show(self, chunk: Document) -> None:
        if self.as_json:
            print_line_document(chunk)
        elif sys.stdout.isatty():
            self._show_on_terminal(_said(chunk, "reasoning_content"), _said(chunk, "content"))
        else:
            click.echo(_said(chunk, "content"), nl=False)

    def _show_on_terminal(self, thought: str, content: str) -> None:
        """What the model thinks before it answers is shown apart, and only to people."""
        if thought:
            click.echo(click.style(printable(thought), dim=True), nl=False)
        if content:
            click.echo(("\n\n" if self.thinking else "") + printable(content), nl=False)
        self.thinking = bool(thought) or (self.thinking and not content)

    def _end_answer(self, answer: list[str]) -> None:
        if not answer:
            self.messages.pop()
            return
        self.messages.append({"role": "assistant", "content": "".join(answer)})
        if not self.as_json:
            click.echo()


def _converse(talk: Talk) -> None:
    """Questions from the terminal until its end of file. An error ends the answer, not the chat."""
    import readline  # noqa: F401 - gives input() line editing and history

    while True:
        try:
            text = input(PROMPT)
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()
            continue
        if text.strip():
            _answer(talk, text)


def _answer(talk: Talk, text: str) -> None:
    try:
        talk.ask(text)
    except KeyboardInterrupt:
        return
    except LlamadError as error:
        report_error(error, as_json=talk.as_json)


@contextmanager
def _naming_the_key() -> Iterator[None]:
    """Says how to give a key when one is asked for."""
    try:
        yield
    except LlamadError as error:
        if error.status == 401:
            error.add_note("give the key with --api-key or in LLAMAD_API_KEY")
        raise


def _public_port(admin: AdminClient, api_key: str) -> PublicPort:
    daemon = admin.get("/status").get("daemon") or {}
    listener = choose_listener([str(listener) for listener in daemon.get("listeners") or []])
    return PublicPort(listener, api_key, tls=bool(daemon.get("tls")))


def _said(chunk: Document, what: str) -> str:
    choices = chunk.get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get(what) or "")
