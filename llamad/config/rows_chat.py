"""Rows of the option table: chats, and what models think before they answer. llama-server's names and meanings."""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.values import Choice, Flag, Matching, Schema, Template, Text, Whole

_CHAT = "Instances: chat"
_ALL = Scope.INSTANCE

ROWS: tuple[Option, ...] = (
    Option(
        "chat-template",
        Template(),
        "chat template: jinja source, or chatml",
        _ALL,
        _CHAT,
        default_text="the model's own",
    ),
    Option(
        "chat-template-file",
        Text("FILE", may_be_empty=False, path=True),
        "file with the chat template",
        _ALL,
        _CHAT,
        default_text="the model's own",
    ),
    Option(
        "chat-template-kwargs",
        Schema(what="set of variables"),
        "variables for the chat template, as a JSON object; a request's own come on top",
        _ALL,
        _CHAT,
        default_text="none",
    ),
    Option(
        "prefill-assistant",
        Flag(),
        "go on with the answer that has begun where the last message is the assistant's",
        _ALL,
        _CHAT,
        default=True,
        negatives=("no-prefill-assistant",),
    ),
    Option(
        "skip-chat-parsing",
        Flag(),
        "leave thoughts and calls of tools in the content",
        _ALL,
        _CHAT,
        default=False,
        negatives=("no-skip-chat-parsing",),
    ),
    Option(
        "reasoning-format",
        Choice(("auto", "none", "deepseek", "deepseek-legacy")),
        "where thoughts are told: in the content (none), in reasoning_content (deepseek), in both (deepseek-legacy)",
        _ALL,
        _CHAT,
        default="auto",
        env=("LLAMA_ARG_THINK",),
    ),
    Option(
        "reasoning",
        Choice(("on", "off", "auto"), same={"true": "on", "1": "on", "false": "off", "0": "off"}),
        "whether models think before they answer, where their templates can tell them (auto: as the template has it)",
        _ALL,
        _CHAT,
        default="auto",
        also=("rea",),
    ),
    Option(
        "reasoning-effort",
        Matching("[a-z]{1,32}", "a level, for example low, or default"),
        "how much templates that know levels have the model think; none: not at all",
        _ALL,
        _CHAT,
        default="default",
    ),
    Option(
        "reasoning-budget",
        Whole(-1),
        "tokens that a thought may have: -1 for any number, 0 for none",
        _ALL,
        _CHAT,
        default=-1,
        env=("LLAMA_ARG_THINK_BUDGET",),
    ),
    Option(
        "reasoning-budget-message",
        Text(),
        "what ends a thought that has spent its tokens",
        _ALL,
        _CHAT,
        default_text="none",
        env=("LLAMA_ARG_THINK_BUDGET_MESSAGE",),
    ),
    Option(
        "reasoning-preserve",
        Flag(),
        "keep the thoughts of earlier answers in prompts, where the template can",
        _ALL,
        _CHAT,
        default_text="on",
        negatives=("no-reasoning-preserve",),
    ),
)
