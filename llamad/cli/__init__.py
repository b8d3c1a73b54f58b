"""llamactl: what people and scripts hold llamad by.

Invariants: only the admin socket is asked (the public port for `chat`); no decision is made here that the daemon could
make; a command that changes something waits for the answer to that change and never polls to find out how it ended;
`--json` prints the API's documents as they are. Heavy imports (requests, rich) happen inside the functions that need
them, so that `--help` and tab completion start fast.
"""
