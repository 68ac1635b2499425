"""`python -m reactant_supervisor`."""

from __future__ import annotations

import sys

from reactant_supervisor.app import main

if __name__ == "__main__":
    sys.exit(main())
