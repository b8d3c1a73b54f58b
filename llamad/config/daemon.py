"""The daemon's own settings from its merged layer."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from llamad.config import files, options, paths
from llamad.config.layers import Layer
from llamad.config.settings import Problem, Settings

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_PATHS = (
    "models_dir", "models_preset", "runtime_dir", "state_dir", "api_key_file", "ssl_key_file", "ssl_cert_file",
)  # fmt: skip
# sun_path has 108 bytes with its NUL.
_SOCKET_PATH_BYTES_MAX = 107


def build_settings(
    layer: Layer, environ: Mapping[str, str], user_id: int, config_file: str
) -> tuple[Settings, list[Problem]]:
    """Settings with every default filled in, and what is wrong with them (fatal)."""
    given: dict[str, Any] = {}
    for field, option in options.by_setting().items():
        if option.name in layer:
            given[field] = layer[option.name].value
    for field in _PATHS:
        if field in given:
            given[field] = files.absolute(given[field])
    if given.get("models_memory_margin_bytes") == -1:
        given["models_memory_margin_bytes"] = None
    given.setdefault("runtime_dir", paths.default_runtime_dir(environ, user_id))
    given.setdefault("state_dir", paths.default_state_dir(environ, user_id))
    host, port = given.get("host") or ("127.0.0.1",), given.get("port", 8080)
    given["host"] = host
    listeners, problems = [], []
    for name in host:
        try:
            listeners.append(_listener(name, port))
        except ValueError as error:
            setting = layer["host"]
            problems.append(Problem(setting.file, setting.line, f"cannot set 'host': {error}", fatal=True))
    given["listeners"] = tuple(dict.fromkeys(listeners))
    return Settings(config_file=config_file, **given), problems


def _listener(host: str, port: int) -> str:
    """`127.0.0.1:8080`, `[::1]:8080`, `unix:/path` of what `host` names. ValueError: the reason."""
    path = host.removeprefix("unix:")
    if host.startswith("unix:") or (host.startswith("/") and host.endswith(".sock")):
        if not path.startswith("/"):
            raise ValueError(f"{host!r} has no absolute path")
        if len(path.encode()) > _SOCKET_PATH_BYTES_MAX:
            raise ValueError(
                f"the path of a socket has at most {_SOCKET_PATH_BYTES_MAX} bytes, {path!r} has more"
            )
        return f"unix:{path}"
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        if not _HOST_NAME.fullmatch(host):
            raise ValueError(f"{host!r} is no address, no host name and no unix:/path") from None
        return f"{host}:{port}"
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
