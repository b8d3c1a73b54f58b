"""llama-server's `speculative.…` fields: a request's own limits of speculation."""

from __future__ import annotations

from llamad.api.fields import Fields
from llamad.engine.vocabulary import Speculative

N_MAX = 1024


def parse_speculative(fields: Fields) -> Speculative | None:
    """None where the request says nothing. What a model cannot do it does not do: the answer is the same."""
    names = ("speculative.n_max", "speculative.n_min", "speculative.p_min")
    if all(fields.raw(name) is None for name in names):
        return None
    n_max, n_min = (
        fields.integer(name, 0, 0, N_MAX) if fields.raw(name) is not None else None for name in names[:2]
    )
    p_min = fields.number(names[2], 0.0, 0.0, 1.0) if fields.raw(names[2]) is not None else None
    return Speculative(n_max, n_min, p_min)
