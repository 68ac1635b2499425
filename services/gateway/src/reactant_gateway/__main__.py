"""`python -m reactant_gateway`."""

from __future__ import annotations

import signal
import sys

# A reload asked for while the imports below still run is a reload of what is read after them.
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

from reactant_gateway.app import main

if __name__ == "__main__":
    sys.exit(main())
