"""One model, many requests: slots, batches, sampling.

Pure: `slot`, `plan`, `prefix`, `text`. Touching llama.cpp: `llama` alone. Threads: `engine`, `inbox`.

Invariants: the engine never sees JSON, HTTP or a file of configuration; it decides no policy; it speaks the vocabulary
of `llamad.engine.vocabulary` and nothing else.
"""
