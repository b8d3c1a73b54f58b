"""The scheduler: which model runs, who waits, who leaves. Pure.

Input is one event at a time and the time it happened; output is a list of actions for the shell to carry out. The same
events at the same times give the same actions. Time passing is an event, too (`ClockTicked`).

Invariants: no IO, no clock, no randomness, no thread, no logging; nothing here knows a path, a socket or a process id.
Children are known by a generation number that is never used twice, so late news of an old child falls on the floor.
"""
