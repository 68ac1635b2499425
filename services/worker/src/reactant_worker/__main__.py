"""`python -m reactant_worker`."""

import sys

from reactant_worker.app import main

sys.exit(main())
