"""llamad: many local GGUF models behind one OpenAI-compatible port.

Start with ARCHITECTURE.md; it has the map of this package, who may import whom, and the three traces
(a request's, a crash's, a reload's) that lead through it.
"""

__version__ = "0.1.0"

# llama.cpp's form, b(build number)-(what was built). The number of the build that llama-cpp-python brings is not known,
# for which llama.cpp itself says 0.
BUILD_INFO = f"b0-llamad-{__version__}"
