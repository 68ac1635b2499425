"""SIGHUP: what a running worker takes from its configuration, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from reactant_core import logs
from reactant_core.config import load_worker_config
from reactant_worker.reload import Reload


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logs.level()
    logs.set_level("info")
    yield
    logs.set_level(before)


def reload_after(environ: Mapping[str, str], started: Mapping[str, str] | None = None) -> Reload:
    config = load_worker_config(dict(started or {}))
    reload = Reload(config, lambda: load_worker_config(dict(environ)))
    reload()
    return reload


def test_the_log_level_is_applied(caplog: pytest.LogCaptureFixture) -> None:
    reload_after({"INFERENCE_SERVER_LOG_LEVEL": "warning"})

    assert logs.level() == "warning"


def test_a_level_set_by_request_stays_while_the_file_says_nothing_new() -> None:
    logs.set_level("debug")
    reload = reload_after({})

    reload()

    assert logs.level() == "debug"


def test_what_takes_a_restart_is_named(caplog: pytest.LogCaptureFixture) -> None:
    reload = reload_after(
        {"INFERENCE_SERVER_ENDPOINTS_PORT": "8090", "INFERENCE_SERVER_LOG_LEVEL": "debug"},
        {"INFERENCE_SERVER_HOOK_THREADS": "3"},
    )
    reload()

    told = [record.getMessage() for record in caplog.records if "restart" in record.getMessage()]
    assert len(told) == 2
    for line in told:
        assert "['endpoints.port', 'hook_threads']" in line


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("INFERENCE_SERVER_ENDPOINTS_PORT", "high", "INFERENCE_SERVER_ENDPOINTS_PORT"),
        ("INFERENCE_SERVER_RUNTIME_NUMERICS", "f32", "runtime.numerics"),
    ],
)
def test_a_bad_configuration_changes_nothing(
    caplog: pytest.LogCaptureFixture, key: str, value: str, fault: str
) -> None:
    reload_after({key: value, "INFERENCE_SERVER_LOG_LEVEL": "error"})

    assert logs.level() == "info"
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "the old one stays" in line
    assert fault in line
