"""The public listeners' certificate: one TLS context, whose certificate can be replaced while it serves."""

from __future__ import annotations

import logging
import ssl

log = logging.getLogger(__name__)


class Certificate:
    """Raises OSError (ssl.SSLError is one) when the files cannot be used."""

    def __init__(self, cert_file: str, key_file: str) -> None:
        self._files = (cert_file, key_file)
        self.context = self._load()

    def renew(self) -> None:
        """Use what the files hold now, from the next handshake on. What runs, runs on; a faulty pair changes nothing."""
        try:
            # A context that has taken a certificate and then refuses its key is left with both halves of two pairs.
            self._load()
            self.context.load_cert_chain(*self._files, password=_no_password)
        except OSError as error:
            log.error("cannot use the renewed certificate %s, the old one stays: %s", self._files[0], error)
        else:
            log.info("using the renewed certificate %s", self._files[0])

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._files, password=_no_password)
        context.set_alpn_protocols(["http/1.1"])
        return context


def _no_password() -> str:
    """Instead of a question on the terminal."""
    return ""
