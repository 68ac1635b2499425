"""What children have in their environment whatever they are. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from reactant_core.config.gateway import HOLD_FD_VARIABLE, LISTEN_FDS_VARIABLE
from reactant_core.logs import FORMAT_VARIABLE
from reactant_core.notify import VARIABLES as NOTIFY_VARIABLES

_OURS = (*NOTIFY_VARIABLES, LISTEN_FDS_VARIABLE, HOLD_FD_VARIABLE)


def inherited(environ: Mapping[str, str], *, terminal: bool) -> dict[str, str]:
    """`environ` without what speaks to the supervisor alone, and with what a child should know of its log."""
    env = {name: value for name, value in environ.items() if name not in _OURS}
    # A child writes to a pipe; these tell it what is at the other end.
    env["PYTHONUNBUFFERED"] = "1"
    if terminal:
        env[FORMAT_VARIABLE] = environ.get(FORMAT_VARIABLE) or "console"
        if not environ.get("NO_COLOR"):
            env["FORCE_COLOR"] = "1"
    return env
