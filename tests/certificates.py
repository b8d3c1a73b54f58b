"""Certificates for tests: a pair of files, signed by an authority of their own."""

from __future__ import annotations

from pathlib import Path

import trustme


def write_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """`cert.pem` and `key.pem` for a name and for 127.0.0.1, in place of earlier ones; `ca.pem` to trust them by."""
    authority = trustme.CA()
    issued = authority.issue_cert(name, "127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return cert, key
