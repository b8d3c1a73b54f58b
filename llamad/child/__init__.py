"""Life of the roles that a child process can have: `instance`, `measure` and `scan`.

A child is `python -m llamad child`. It learns its role and options from its first line on stdin, reports on what was
its stdout, and logs to stderr (wire/child has the protocol).

Invariants: a child decides no policy; it never outlives its parent; nothing but reports goes to its stdout, whatever a
library prints; heavy imports happen after that is settled, and only those of its own role.
"""
