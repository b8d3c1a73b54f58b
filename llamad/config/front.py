"""What the public port's options name: the file of keys and the certificate's files, read with the registry.

All of it is fatal when it is wrong. A port that opens to everybody because a file could not be read would be worse than
one that does not open.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace

from llamad.config import files, secrets, sources
from llamad.config.layers import Layer
from llamad.config.settings import ApiKey, Problem, Settings

Read = Callable[[str], bytes]
"""Reads a configuration file, whole."""


def read_front(settings: Settings, layer: Layer, read: Read) -> tuple[Settings, list[Problem]]:
    """The settings with `keys` and `tls`, and what is wrong with the files."""
    keys, problems = _keys(settings, layer, read)
    tls, faults = _tls(settings, layer)
    return replace(settings, keys=tuple(keys), tls=tls), problems + faults


def _keys(settings: Settings, layer: Layer, read: Read) -> tuple[list[ApiKey], list[Problem]]:
    """The file's keys before bare ones: where both have a key, the file says more of it."""
    problems: list[Problem] = []
    keys: dict[str, ApiKey] = {}
    if settings.api_key_file:
        from_file, problems = _key_file(settings.api_key_file, layer, read)
        keys = {key.digest: key for key in from_file}
    for key in secrets.bare_keys(settings.api_key):
        keys.setdefault(key.digest, key)
    return list(keys.values()), problems


def _key_file(path: str, layer: Layer, read: Read) -> tuple[list[ApiKey], list[Problem]]:
    try:
        mode = os.stat(path).st_mode
        text = read(path).decode()
    except OSError as error:
        return [], [_of_option(layer, "api-key-file", files.why(error, f"the keys '{path}'"))]
    except UnicodeDecodeError:
        return [], [_of_option(layer, "api-key-file", f"cannot use the keys '{path}': not UTF-8")]
    except ValueError as error:
        return [], [_of_option(layer, "api-key-file", f"cannot use the keys '{path}': {error}")]
    keys, plain, problems = secrets.parse(text, path)
    if mode & stat.S_IWOTH or (plain and mode & stat.S_IROTH):
        verb = "write" if mode & stat.S_IWOTH else "read"
        message = f"cannot trust the keys: every user may {verb} the file (chmod 640)"
        problems.append(Problem(path, 0, message, fatal=True))
    if not keys and not problems:
        problems.append(Problem(path, 0, "cannot use the keys: there are none in the file", fatal=True))
    return keys, problems


def _tls(settings: Settings, layer: Layer) -> tuple[str, list[Problem]]:
    """What tells that the files have changed, "" without TLS."""
    cert, key = settings.ssl_cert_file, settings.ssl_key_file
    if not cert and not key:
        return "", []
    if not cert or not key:
        option, other = ("ssl-key-file", "ssl-cert-file") if key else ("ssl-cert-file", "ssl-key-file")
        return "", [_of_option(layer, option, f"cannot speak TLS without '{other}'")]
    stamps = []
    for option, path in (("ssl-cert-file", cert), ("ssl-key-file", key)):
        try:
            with files.open_regular(path) as file:
                stamps.append(sources.identity(path, os.fstat(file.fileno())))
        except OSError as error:
            return "", [_of_option(layer, option, files.why(error, f"'{path}'"))]
        except ValueError as error:
            return "", [_of_option(layer, option, f"cannot use '{path}': {error}")]
    fault = _pair_fault(cert, key)
    return " ".join(stamps), [_of_option(layer, "ssl-cert-file", fault)] if fault else []


def _pair_fault(cert: str, key: str) -> str:
    """Why the files are no certificate with its key, "" if they are."""
    # Only a scan and a check come here, and whoever has no certificate pays nothing for it.
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        return f"cannot use the certificate '{cert}' with the key '{key}': {reason.lower().replace('_', ' ')}"
    return ""


def _of_option(layer: Layer, option: str, message: str) -> Problem:
    setting = layer[option]
    return Problem(setting.file, setting.line, message, fatal=True)
