"""LogSettings: the log verbosity as Triton's clients read and set it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from reactant_core import logs
from reactant_core.errors import InvalidArgument
from reactant_proto import inference_pb2 as pb

_SWITCHES = ("log_info", "log_warning", "log_error")
_LEVELS = ("error", "warning", "info", "debug")


@final
class LogSettings:
    """Maps the four switches to one level: error < warning < info < debug (verbose level above 0)."""

    def __init__(self, format_name: str) -> None:
        self._format = format_name

    def apply(self, settings: Mapping[str, pb.LogSettingsRequest.SettingValue]) -> pb.LogSettingsResponse:
        """Sets what is given, all or nothing; returns everything.

        Raises InvalidArgument naming the setting.
        """
        switches, verbose = self._current()
        for key, value in settings.items():
            choice = value.WhichOneof("parameter_choice")
            if choice is None:
                continue
            if key in _SWITCHES:
                if choice != "bool_param":
                    raise InvalidArgument(f"log setting '{key}' must be bool_param")
                switches[key] = value.bool_param
            elif key == "log_verbose_level":
                if choice != "uint32_param":
                    raise InvalidArgument(f"log setting '{key}' must be uint32_param")
                verbose = value.uint32_param
            elif key in ("log_file", "log_format"):
                raise InvalidArgument(f"log setting '{key}' is fixed at start")
            else:
                accepted = ", ".join((*_SWITCHES, "log_verbose_level"))
                raise InvalidArgument(f"unknown log setting '{key}'; settable are {accepted}")
        if settings:
            logs.set_level(_level(switches, verbose))
        return self._response()

    @staticmethod
    def _current() -> tuple[dict[str, bool], int]:
        rank = _LEVELS.index(logs.level()) if logs.level() in _LEVELS else 0
        return {"log_info": rank >= 2, "log_warning": rank >= 1, "log_error": True}, int(rank >= 3)

    def _response(self) -> pb.LogSettingsResponse:
        switches, verbose = self._current()
        response = pb.LogSettingsResponse()
        for key, value in switches.items():
            response.settings[key].bool_param = value
        response.settings["log_verbose_level"].uint32_param = verbose
        response.settings["log_file"].string_param = ""
        response.settings["log_format"].string_param = self._format
        return response


def _level(switches: Mapping[str, bool], verbose: int) -> str:
    if verbose > 0:
        return "debug"
    if switches["log_info"]:
        return "info"
    return "warning" if switches["log_warning"] else "error"
