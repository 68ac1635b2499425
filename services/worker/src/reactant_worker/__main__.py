"""`python -m reactant_worker`."""

import signal
import sys

# Before the long imports: until the service reads its configuration there is nothing to reload.
if sys.platform != "win32":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

from reactant_worker.app import main

sys.exit(main())
