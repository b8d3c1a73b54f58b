"""The supervisor's IO shell: one process, one thread, one loop around the pure scheduler.

Invariants: nothing here blocks; a slow thing is a child process and a wait is a state with a timer. Nothing here decides
which model runs: events go to `llamad.core`, its actions come back and are carried out in order. No thread, no
`llama_cpp`, no `falcon`, no `click`. Every buffer, queue and retry has a bound, and every child is waited for.
"""
