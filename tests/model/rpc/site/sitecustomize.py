"""Gives llama.cpp more devices as soon as a process has imported it; Python runs this at its start (PYTHONPATH).

LLAMAD_TEST_RPC=HOST:PORT[,...]@LIBRARY     RPC servers, and llama.cpp's RPC backend; they become RPC0, RPC1, ...
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

VARIABLE = "LLAMAD_TEST_RPC"
MODULE = "llama_cpp.llama_cpp"


class Finder(importlib.abc.MetaPathFinder):
    """Lets the module be found and run as ever, and then registers the device."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            register(os.environ[VARIABLE])

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register(value: str) -> None:
    endpoints, _, path = value.partition("@")
    rpc = ctypes.CDLL(path)
    # By soname: the package has copies under other names, each with a registry of its own.
    registry = ctypes.CDLL("libggml.so.0")
    rpc.ggml_backend_rpc_add_server.restype = ctypes.c_void_p
    for endpoint in endpoints.split(","):
        backend = rpc.ggml_backend_rpc_add_server(endpoint.encode())
        if not backend:
            sys.exit(f"cannot reach the RPC server at {endpoint}")
        registry.ggml_backend_register(ctypes.c_void_p(backend))


if os.environ.get(VARIABLE):
    sys.meta_path.insert(0, Finder())
