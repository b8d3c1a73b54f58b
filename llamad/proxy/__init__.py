"""The front: gunicorn's ASGI workers with a Falcon app between clients and instances.

Invariants: the front knows no path, no registry and no policy; it reads of a body the model's name and nothing else;
request and answer bytes pass unchanged; each lease is released exactly once, whatever way its request ends; a client
that leaves is noticed in every phase; every buffer, pool and wait has a bound.
"""
