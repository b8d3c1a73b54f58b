"""llamad: many local GGUF models behind one OpenAI-compatible port.

Start with ARCHITECTURE.md; it has the map of this package, who may import whom, and the three traces
(a request's, a crash's, a reload's) that lead through it.
"""

__version__ = "0.1.0"
