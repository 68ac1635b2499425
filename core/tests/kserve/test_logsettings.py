"""Log settings: read, set, refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reactant_core import logs
from reactant_core.errors import InvalidArgument
from reactant_core.kserve.logsettings import LogSettings
from reactant_proto import inference_pb2 as pb


@pytest.fixture
def log_settings() -> Iterator[LogSettings]:
    before = logs.level()
    logs.set_level("info")
    yield LogSettings("default")
    logs.set_level(before)


def test_log_settings_read_and_set(log_settings: LogSettings) -> None:
    assert log_settings.apply({}).settings["log_info"].bool_param
    request = pb.LogSettingsRequest()
    request.settings["log_verbose_level"].uint32_param = 1
    assert log_settings.apply(request.settings).settings["log_verbose_level"].uint32_param == 1
    assert logs.level() == "debug"
    request.settings["log_verbose_level"].uint32_param = 0
    request.settings["log_info"].bool_param = False
    assert not log_settings.apply(request.settings).settings["log_info"].bool_param
    assert logs.level() == "warning"


@pytest.mark.parametrize(
    ("key", "choice", "value", "complaint"),
    [
        ("log_inf", "bool_param", True, "unknown log setting 'log_inf'; settable are log_info"),
        ("log_info", "string_param", "yes", "'log_info' must be bool_param"),
        ("log_verbose_level", "bool_param", True, "must be uint32_param"),
        ("log_file", "string_param", "/x", "fixed at start"),
    ],
)
def test_wrong_log_settings_change_nothing(
    log_settings: LogSettings, key: str, choice: str, value: Any, complaint: str
) -> None:
    request = pb.LogSettingsRequest()
    request.settings["log_warning"].bool_param = False
    setattr(request.settings[key], choice, value)
    with pytest.raises(InvalidArgument, match=complaint):
        log_settings.apply(request.settings)
    assert logs.level() == "info"
