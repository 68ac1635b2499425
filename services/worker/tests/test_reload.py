"""SIGHUP: what a running worker takes from its configuration, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from reactant_core import logs
from reactant_core.config import Effective, WorkerConfig, load_worker_config
from reactant_worker.reload import Reload


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logs.level()
    logs.set_level("info")
    yield
    logs.set_level(before)


def no_weight(model: str, weight: float) -> None:
    raise AssertionError(f"{model} was given weight {weight:g}")


def reload_after(environ: Mapping[str, str], started: Mapping[str, str] | None = None) -> Reload:
    config = load_worker_config(dict(started or {}))
    reload = Reload(config, lambda: load_worker_config(dict(environ)), no_weight)
    reload()
    return reload


class Weights:
    """A node file whose `scheduler.models` changes, and the weights that a reload puts in force."""

    def __init__(self, folder: Path, models: str) -> None:
        self._file = folder / "node.yaml"
        self.set: list[tuple[str, float]] = []
        self._write(models)
        self._reload = Reload(self._read(), self._read, lambda *told: self.set.append(told))

    def become(self, models: str) -> list[tuple[str, float]]:
        """What the reload set after the file changed."""
        self.set.clear()
        self._write(models)
        self._reload()
        return sorted(self.set)

    def _write(self, models: str) -> None:
        self._file.write_text(f"global: {{scheduler: {{models: {models}}}}}\n")

    def _read(self) -> Effective[WorkerConfig]:
        return load_worker_config({}, node_file=self._file)


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


def test_weights_are_applied_where_the_file_says_something_new(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights = Weights(tmp_path, "{}")

    assert weights.become("{a.b: {weight: 3}, c: {weight: 2}}") == [("a.b", 3.0), ("c", 2.0)]
    # Meanwhile a request may have set another one.
    assert weights.become("{a.b: {weight: 3}, c: {weight: 4}}") == [("c", 4.0)]
    assert weights.become("{a.b: {weight: 3}}") == [("c", 1.0)]
    assert not [record for record in caplog.records if "restart" in record.getMessage()]


def test_the_other_settings_of_a_model_take_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights = Weights(tmp_path, "{a: {weight: 3}}")

    assert weights.become("{a: {weight: 3, max_batch_size: 4}}") == []
    (line,) = [record.getMessage() for record in caplog.records if "restart" in record.getMessage()]
    assert "['scheduler.models.a.max_batch_size']" in line
