"""How far along a server is, from `/readyz` on its HTTP port."""

from __future__ import annotations

import http.client

from reactant_cli.failure import USAGE, CommandFailure
from reactant_cli.shown import shown
from reactant_core.progress import Progress, parse_readyz

_BODY_LIMIT_BYTES = 1024 * 1024


def split_address(address: str, option: str) -> tuple[str, int]:
    """Host and port of `host:port` or `http://host:port`.

    Raises:
        CommandFailure: malformed; names `option`.
    """
    host, separator, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    if not host or not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CommandFailure(
            f"{option} {shown(address)}: write it as host:port, such as localhost:8002", USAGE
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def ask(host: str, port: int, timeout_seconds: float) -> Progress | None:
    """GETs `/readyz`; None when no HTTP server answers in time."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        return parse_readyz(response.status, response.read(_BODY_LIMIT_BYTES))
    except (OSError, UnicodeError, http.client.HTTPException):
        # UnicodeError: a name that no host can have.
        return None
    finally:
        connection.close()
