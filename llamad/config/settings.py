"""What configuration comes to: frozen values, and their plain form for the pipe between a scan child and the supervisor.

Everything in `to_document()` is JSON (str, int, float, bool, None, lists, string-keyed objects), and
`from_document(to_document(x)) == x`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

OptionValue = str | int | float | bool | tuple[str, ...]
"""A typed option value. Numbers are in the unit that the option's long name or help states."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the configuration.

    `file` is a path, `environment` or `command line`; `line` 0 means the file as a whole. `model` is the model that is
    left out because of it, "" when none is. `fatal`: llamad cannot start with it (a daemon option is wrong).
    """

    file: str
    line: int
    message: str
    model: str = ""
    fatal: bool = False

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.message}"

    def to_document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _names(Problem)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Problem:
        return cls(**_known(cls, document))


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """What the header of a model's GGUF says, summed over its shards where it adds up.

    `file_type` is the quantisation (`Q4_K_M`, "" when unknown), `size_label` the author's (`135M`, "").
    `n_params` counts tensor elements. 0 stands for "not said".
    """

    architecture: str = ""
    name: str = ""
    n_ctx_train: int = 0
    n_embd: int = 0
    n_layer: int = 0
    n_vocab: int = 0
    n_params: int = 0
    size_bytes: int = 0
    file_type: str = ""
    size_label: str = ""
    n_shards: int = 1
    has_chat_template: bool = False

    def to_document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _names(GgufFacts)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> GgufFacts:
        return cls(**_known(cls, document))


@dataclass(frozen=True, slots=True)
class RequestRules:
    """What becomes of the parameters of a model's requests: first `remove`, then `default`, then `force`.

    `default` (for what a request does not say) and `force` (whatever it says) map a parameter to its value as JSON text.
    """

    default: Mapping[str, str] = field(default_factory=dict)
    force: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.default or self.force or self.remove)

    def to_document(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in _names(RequestRules)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RequestRules:
        return cls(**_known(cls, document))


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key of the public port: its SHA-256 in hex, and what it may do. The key itself is kept nowhere.

    `name`: unique, shown. `models` (ids, aliases or variants) empty: all. A limit of 0 is none; rates are per minute.
    """

    digest: str
    name: str
    manage: bool = False
    models: tuple[str, ...] = ()
    max_concurrent: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0

    def to_document(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in _names(ApiKey)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ApiKey:
        return cls(**_known(cls, document))


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model that can be served, and how.

    `path`: the GGUF given to the loader (the first shard); `shards`: all parts, in order, when there are several.
    `mmproj`: a projector that belongs to it, "" for none. `source`: `models-dir` or `preset`, where it was found first.
    `options`: instance options that somebody set, by llama-server's long name without dashes (`ctx-size`), typed;
    what nobody set has the table's default. `stop_timeout_s`: between the polite stop and the hard one.
    `args`: the same as a llama-server command line, for `status.args`; `preset`: the same as INI text.
    `sleep_idle_s`, `unload_idle_s` 0: never; `concurrency_limit` 0: by its slots. `files`: what identifies the files.
    `created`: the file's mtime, seconds since the epoch. `notes`: what is worth telling though nothing is wrong.
    `rules`: for its requests; `variants`: further names of it, each with the rules that count there.
    `fingerprint` changes exactly when a running instance has to be replaced to follow this value.
    """

    name: str
    path: str
    shards: tuple[str, ...] = ()
    mmproj: str = ""
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    source: str = "preset"
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    load_on_startup: bool = False
    stop_timeout_s: float = 10.0
    pinned: bool = False
    priority: int = 0
    concurrency_limit: int = 0
    sleep_idle_s: float = 0.0
    unload_idle_s: float = 0.0
    unlisted: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    engine: str = "llamad"
    rules: RequestRules = field(default_factory=RequestRules)
    variants: Mapping[str, RequestRules] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    preset: str = ""
    facts: GgufFacts = field(default_factory=GgufFacts)
    created: int = 0
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    fingerprint: str = ""

    def to_document(self) -> dict[str, Any]:
        document = {name: _plain(getattr(self, name)) for name in _names(ModelSpec)}
        document["facts"] = self.facts.to_document()
        document["rules"] = self.rules.to_document()
        document["variants"] = {name: rules.to_document() for name, rules in self.variants.items()}
        return document

    @property
    def other_names(self) -> tuple[str, ...]:
        """Aliases and variants."""
        return (*self.aliases, *self.variants)

    def rules_for(self, name: str) -> RequestRules:
        """The rules for requests under one of its names."""
        return self.variants.get(name, self.rules)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ModelSpec:
        known = _known(cls, document)
        known["facts"] = GgufFacts.from_document(known.get("facts") or {})
        known["options"] = {key: _frozen(value) for key, value in known.get("options", {}).items()}
        known["rules"] = RequestRules.from_document(known.get("rules") or {})
        known["variants"] = {
            name: RequestRules.from_document(rules) for name, rules in known.get("variants", {}).items()
        }
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Registry:
    """Every model that can be served, by name, and everything that is wrong."""

    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def resolve(self, name: str) -> ModelSpec | None:
        """The model whose id, alias or variant is exactly `name`, or None. Case counts; never a substitute."""
        found = self.models.get(name)
        if found is not None:
            return found
        return next((model for model in self.models.values() if name in model.other_names), None)


@dataclass(frozen=True, slots=True)
class Settings:
    """The daemon's own options, after precedence. Sources and meanings: the option table.

    `listeners`: public addresses as `HOST:PORT`, `[V6]:PORT` or `unix:/path`. `models_memory_margin_bytes` None:
    the memory books are off. `models_max` 0: no limit by count. `queue_timeout_s`, `timeout_s`, `body_timeout_s`, `load_timeout_s`, `stall_timeout_s` 0: no limit.
    `models_dir`, `models_preset`, `config_file`, `api_key_file`, `ssl_…_file` "": none. `api_key`: digests, see ApiKey.
    `socket_mode`, `socket_group`: of public Unix sockets. `keys`: all of them, and `tls`, which changes when the
    certificate's files do, are read with the registry and not with the options.
    """

    runtime_dir: str
    state_dir: str
    config_file: str = ""
    host: tuple[str, ...] = ("127.0.0.1",)
    port: int = 8080
    listeners: tuple[str, ...] = ("127.0.0.1:8080",)
    workers: int = 2
    models_dir: str = ""
    models_preset: str = ""
    models_max: int = 4
    models_memory_margin_bytes: int | None = None
    models_autoload: bool = True
    drain_after_s: float = 30.0
    queue_timeout_s: float = 600.0
    max_queued: int = 512
    timeout_s: float = 3600.0
    body_timeout_s: float = 300.0
    max_body_bytes: int = 128 * 1024 * 1024
    websocket_idle_s: float = 600.0
    websocket_message_bytes: int = 16 * 1024 * 1024
    socket_mode: int = 0o660
    socket_group: str = ""
    ssl_key_file: str = ""
    ssl_cert_file: str = ""
    tls: str = ""
    api_key: tuple[str, ...] = ()
    api_key_file: str = ""
    keys: tuple[ApiKey, ...] = ()
    cors_origins: tuple[str, ...] = ("*",)
    cors_methods: tuple[str, ...] = ("GET", "POST", "DELETE", "OPTIONS")
    cors_headers: tuple[str, ...] = ("*",)
    cors_credentials: bool = True
    instance_transport: str = "tcp"
    load_timeout_s: float = 300.0
    stall_timeout_s: float = 60.0
    stop_timeout_s: float = 10.0
    log_level: str = "info"

    def to_document(self) -> dict[str, Any]:
        document = {name: _plain(getattr(self, name)) for name in _names(Settings)}
        document["keys"] = [key.to_document() for key in self.keys]
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Settings:
        known = _known(cls, document)
        known["keys"] = tuple(ApiKey.from_document(key) for key in known.get("keys", ()))
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that a start or a reload needs."""

    settings: Settings
    registry: Registry

    @property
    def fatal(self) -> tuple[Problem, ...]:
        """Problems that llamad cannot start with."""
        return tuple(problem for problem in self.registry.problems if problem.fatal)


def _names(cls: type) -> tuple[str, ...]:
    return tuple(entry.name for entry in fields(cls))


def _known(cls: type, document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `cls` in a document. Others are dropped, so that either end of a pipe may be the newer one."""
    return {name: _frozen(document[name]) for name in _names(cls) if name in document}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
