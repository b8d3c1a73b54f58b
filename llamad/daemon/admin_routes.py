"""The admin API's route table: every change is POST, every read is GET, and the table says which is which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from llamad.daemon.admin import Exchange
from llamad.errors import NotFoundError, RequestError

Handler = Callable[[Exchange, str], None]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` matches exactly; one that ends with `/` takes the rest, percent-decoded, as its name. `changes`: not for everybody."""

    method: str
    path: str
    handler: Handler
    changes: bool = False

    def match(self, path: str) -> str | None:
        """The name in the path ("" when the route has none), or None."""
        if not self.path.endswith("/"):
            return "" if path == self.path else None
        rest = path.removeprefix(self.path)
        return unquote(rest) if rest and rest != path else None


class Router:
    """Finds the route of an exchange, checks the peer's rights, and calls the handler."""

    def __init__(self, routes: list[Route]) -> None:
        self._routes = routes

    def handle(self, exchange: Exchange) -> None:
        request = exchange.request
        method = "GET" if request.method == "HEAD" else request.method
        other_methods = []
        for route in self._routes:
            name = route.match(request.path)
            if name is None:
                continue
            if route.method == method:
                if route.changes:
                    exchange.require_rights()
                route.handler(exchange, name)
                return
            other_methods.append(route.method)
        if other_methods:
            allowed = ", ".join(sorted(set(other_methods)))
            raise RequestError(
                f"cannot {request.method} {request.path}: only {allowed}",
                kind="method-not-allowed",
                status=405,
            )
        raise NotFoundError(f"cannot find {request.path}", kind="route-not-found")
