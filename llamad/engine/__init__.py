"""One model, many requests: slots, batches, sampling.

Pure: `slot`, `plan`, `prefix`, `text`, `stages`, `narrow`, `sampling`, `logprobs`, `gbnf`, `task`. `pool` and `engine`
carry out what these decide, through the `backend` protocol; `llama` is its only implementation, with its samplers in
`chain`. `guidance` compiles schemas and grammars, in the `workshop`. Threads meet in `inbox` alone.

Invariants: the engine never sees JSON, HTTP or a file of configuration; it decides no policy; it speaks the vocabulary
of `llamad.engine.vocabulary` and nothing else.
"""
