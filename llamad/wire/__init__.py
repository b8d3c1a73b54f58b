"""Sans-IO protocols. Both ends of a wire share one file; nothing here touches a socket, a clock or a thread.

Bytes go in with `feed`, messages come out; messages go in with `encode`, bytes come out. Every buffer has a bound.
"""
