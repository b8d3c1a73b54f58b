"""Whether the tokens of a draft model mean the same as its model's. Beside `llama`, a file that touches llama.cpp."""

from __future__ import annotations

import ctypes

from llama_cpp import llama_cpp as lib

from llamad.engine.llama import LlamaBackend

# What vocabularies may differ in, as llama-server has it: tokens that fill up the end, and the first ones, which are
# special.
_FILLING_MAX = 128
_SPECIAL = 5


def fault(model: LlamaBackend, draft: LlamaBackend) -> str:
    """Why `draft` is of no use to `model`, "" if it is. Looks at every token: 0.1 s for 50,000."""
    own, other = model._vocab, draft._vocab
    n_own, n_other = model.facts.n_vocab, draft.facts.n_vocab
    if draft.recurrent:
        return "it cannot take tokens back"
    if lib.llama_vocab_type(own) != lib.llama_vocab_type(other):
        return "its vocabulary is of another type"
    if abs(n_own - n_other) > _FILLING_MAX:
        return f"its vocabulary has {n_other} tokens, the model's {n_own}"
    if (model.facts.add_bos, model.facts.bos_token) != (draft.facts.add_bos, draft.facts.bos_token):
        return "its texts begin otherwise"
    text = ctypes.PyDLL(lib._lib._name).llama_vocab_get_text
    text.restype, text.argtypes = ctypes.c_char_p, (ctypes.c_void_p, ctypes.c_int32)
    for token in range(_SPECIAL, min(n_own, n_other)):
        if text(own, token) != text(other, token):
            return f"token {token} of its vocabulary is another one"
    return ""
