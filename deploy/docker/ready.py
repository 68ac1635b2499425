"""Exits 0 when the node of this container answers `/readyz` with 200; prints what it lacks otherwise."""

from __future__ import annotations

import http.client
import os
import sys

TIMEOUT_SECONDS = 4.0


def main() -> int:
    """Asks once, on the port that the node has from its environment."""
    port = int(os.environ.get("REACTANT_PUBLIC_METRICS_PORT", "").strip() or 8002)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        sys.stdout.write(f"no answer on port {port}: {error}\n")
        return 1
    finally:
        connection.close()
    sys.stdout.write(f"{answer.status} {body}\n")
    return 0 if answer.status == http.HTTPStatus.OK else 1


if __name__ == "__main__":
    sys.exit(main())
