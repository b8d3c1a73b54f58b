"""One model, many requests: slots, batches, sampling.

What is pure says so in its first line. `slot` and `task` are the machines, `plan`, `prefix`, `recall`, `stages` and `speculation`
decide; `pool` and `engine` carry it out through the `backend` protocol. `llama` is its only implementation, with its samplers
in `chain`. `guidance` compiles schemas and grammars, in the `workshop`. Threads meet in `inbox` alone.

Invariants: the engine never sees JSON, HTTP or a file of configuration; it decides no policy; it speaks the vocabulary
of `llamad.engine.vocabulary` and nothing else.
"""
