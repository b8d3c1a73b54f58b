"""One row of the option table: its fields and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from llamad.config.settings import OptionValue
from llamad.config.values import Flag, Kind

ENV_PREFIX = "LLAMA_ARG_"


class Scope(Enum):
    """Where an option may be set."""

    DAEMON = "daemon"
    """Command line, environment, llamad.ini."""
    INSTANCE = "instance"
    """There, for every model, and in models.ini, for all (`[*]`) or one."""
    MODEL = "model"
    """In models.ini only."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    `name`: canonical, without dashes. `also`: other spellings, short ones included. `negatives`: spellings that say
    no (flags only). `env`: environment names; without any it is `LLAMA_ARG_` and the name. `default` is shown in help
    texts, in the table's own units; None: see `default_text`. `bare`: what an option that takes a value means on a
    command line without one. `single`: it names one model, so `[*]` may not set it.

    Daemon options only: `setting` is the field of Settings that it fills, `restart` means that a change needs a new
    daemon. `action`: it tells the command line what to do and is no setting.

    `honoured` tells how far llamad can follow an option that llama-server has. None: wholly. A tuple: only these
    values, because they are what llamad does anyway. Empty: not yet, whatever the value. Setting anything else is a
    problem, never ignored.
    """

    name: str
    kind: Kind
    help: str
    scope: Scope
    group: str = ""
    default: OptionValue | None = None
    default_text: str = ""
    also: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    bare: str = ""
    single: bool = False
    setting: str = ""
    restart: bool = False
    action: bool = False
    honoured: tuple[OptionValue, ...] | None = None

    @property
    def is_flag(self) -> bool:
        return isinstance(self.kind, Flag)

    @property
    def env_names(self) -> tuple[str, ...]:
        return self.env or (ENV_PREFIX + self.name.upper().replace("-", "_"),)

    def spellings(self) -> tuple[str, ...]:
        """Every key that means this option in an INI file."""
        return (self.name, *self.also, *self.negatives, *self.env_names)

    def read(self, text: str, spelling: str) -> OptionValue:
        """The value of `text` under one of the spellings. ValueError: unreadable, or not to be honoured yet.

        The message names the option as `spelling`.
        """
        try:
            value = self.kind.parse(text)
        except ValueError as error:
            raise ValueError(f"cannot set '{spelling}': {error}") from None
        if spelling.lstrip("-") in self.negatives:
            value = not value
        if self.honoured is not None and value not in self.honoured:
            raise ValueError(self._why_not(spelling))
        return value

    def _why_not(self, spelling: str) -> str:
        # The value is not repeated: it may be a secret.
        if not self.honoured:
            return f"cannot honour option '{spelling}' yet"
        allowed = " or ".join(self.kind.render(word) for word in self.honoured)
        return f"cannot honour option '{spelling}' yet, except with the value {allowed}"
