"""Files in, one frozen value out.

Invariants: reading never stops at the first problem; a problem names its file and line; whoever applies a
configuration applies all of it or nothing; nothing here keeps state between two calls.
"""
