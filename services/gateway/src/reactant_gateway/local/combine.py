"""The answers of several workers made into the one a single worker would give. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from reactant_core.kserve.surface import MODEL_VERSION
from reactant_proto import inference_pb2 as pb

_READY: Final = "READY"
_BEST_FIRST: Final = (_READY, "LOADING", "UNLOADING", "UNAVAILABLE")

_Row = tuple[str, str]
"""State and reason of a model on one worker."""

_NO_BUNDLE: Final[_Row] = ("UNAVAILABLE", "no such model")
_SILENT: Final[_Row] = ("UNAVAILABLE", "the worker does not answer")


def merge_index(
    answered: Mapping[str, pb.RepositoryIndexResponse],
    silent: Mapping[str, Collection[str]],
    *,
    ready_only: bool,
) -> pb.RepositoryIndexResponse:
    """The index of all workers: READY where one of them has the model READY.

    Where they agree, the row is theirs; otherwise the reason says which workers differ from the state
    given, and how.

    Args:
        answered: by worker.
        silent: names of the models that workers without an answer had last, by worker.
        ready_only: leave out what is not READY.
    """
    rows: dict[tuple[str, str], dict[str, _Row]] = {}
    for worker, index in answered.items():
        for model in index.models:
            rows.setdefault((model.name, model.version), {})[worker] = (model.state, model.reason)
    known = {name for name, _ in rows}
    for names in silent.values():
        for name in names:
            if name not in known:
                rows.setdefault((name, MODEL_VERSION), {})
    merged = pb.RepositoryIndexResponse()
    for (name, version), found in sorted(rows.items()):
        full = {worker: found.get(worker, _NO_BUNDLE) for worker in answered}
        full |= {worker: _SILENT for worker, names in silent.items() if name in names}
        state, reason = _one_row(full)
        if not ready_only or state == _READY:
            merged.models.add(name=name, version=version, state=state, reason=reason)
    return merged


def _one_row(rows: Mapping[str, _Row]) -> _Row:
    values = list(rows.values())
    if all(row == values[0] for row in values):
        return values[0]
    state = min((row[0] for row in values), key=_rank)
    told = [f"{worker}: {': '.join(filter(None, row))}" for worker, row in rows.items() if row != (state, "")]
    return state, "; ".join(told)


def _rank(state: str) -> int:
    return _BEST_FIRST.index(state) if state in _BEST_FIRST else len(_BEST_FIRST)


def sum_statistics(responses: Iterable[pb.ModelStatisticsResponse]) -> pb.ModelStatisticsResponse:
    """Every counter and duration summed over the workers, by model and version; the latest inference."""
    models: dict[tuple[str, str], pb.ModelStatistics] = {}
    for response in responses:
        for theirs in response.model_stats:
            mine = models.get((theirs.name, theirs.version))
            if mine is None:
                models[theirs.name, theirs.version] = mine = pb.ModelStatistics()
                mine.CopyFrom(theirs)
            else:
                _add_model(mine, theirs)
    total = pb.ModelStatisticsResponse()
    total.model_stats.extend(models.values())
    return total


def _add_model(mine: pb.ModelStatistics, theirs: pb.ModelStatistics) -> None:
    mine.last_inference = max(mine.last_inference, theirs.last_inference)
    mine.inference_count += theirs.inference_count
    mine.execution_count += theirs.execution_count
    _add_durations(mine.inference_stats, theirs.inference_stats)
    for index, response in theirs.response_stats.items():
        _add_durations(mine.response_stats[index], response)
    batches = {batch.batch_size: batch for batch in mine.batch_stats}
    for batch in theirs.batch_stats:
        if batch.batch_size in batches:
            _add_durations(batches[batch.batch_size], batch)
        else:
            mine.batch_stats.add().CopyFrom(batch)
    mine.batch_stats.sort(key=lambda batch: batch.batch_size)
    kinds = {(usage.type, usage.id): usage for usage in mine.memory_usage}
    for usage in theirs.memory_usage:
        if (usage.type, usage.id) in kinds:
            kinds[usage.type, usage.id].byte_size += usage.byte_size
        else:
            mine.memory_usage.add().CopyFrom(usage)


def _add_durations(mine: Any, theirs: Any) -> None:
    """Adds every StatisticDuration of a message that consists of them; other fields are its key."""
    for field in theirs.DESCRIPTOR.fields:
        if field.message_type is not None and theirs.HasField(field.name):
            target, source = getattr(mine, field.name), getattr(theirs, field.name)
            target.count += source.count
            target.ns += source.ns
