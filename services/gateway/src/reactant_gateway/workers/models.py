"""What a worker's answers say of it and its models. They are the network's: nothing in them is trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import final

from reactant_core.bundle.names import valid_model_name
from reactant_core.errors import clip
from reactant_core.kserve.surface import NOT_LOADED
from reactant_policy.routing.table import READY, ModelView
from reactant_policy.routing.work import Totals, seconds_per_item
from reactant_proto import control_pb2, inference_pb2

Index = Iterable[inference_pb2.RepositoryIndexResponse.ModelIndex]

_NO_CONTROL = control_pb2.ModelControl()


@final
class ModelReader:
    """Reads one worker's models, and measures what their items cost from one reading to the next."""

    __slots__ = ("_totals",)

    def __init__(self) -> None:
        self._totals: Mapping[str, Totals] = {}

    @property
    def totals(self) -> Mapping[str, Totals]:
        """The counters of each model at the last reading; another reading makes another mapping."""
        return self._totals

    def read(
        self,
        index: Index,
        controls: Iterable[control_pb2.ModelControl] | None,
        before: Mapping[str, ModelView],
    ) -> Mapping[str, ModelView]:
        """The models in `index`; names that no model can have, and what is not loaded, are left out.

        Args:
            index: RepositoryIndex.
            controls: ModelControlStatus; None: it could not be read, and what `before` says holds on. A
                model that is not listed is not idempotent and has no batch axis.
            before: the models as they were read last; they carry the measurements on.
        """
        named = None if controls is None else {control.name: control for control in controls}
        models: dict[str, ModelView] = {}
        for entry in index:
            known = models.get(entry.name)
            # A server with several versions of a model serves it as long as it serves one of them.
            if not valid_model_name(entry.name) or (known is not None and known.state == READY):
                continue
            if entry.reason.startswith(NOT_LOADED) and entry.state != READY:
                # In the repository and not served: to clients unknown.
                continue
            last = before.get(entry.name)
            if named is None:
                models[entry.name] = _carried(entry, last)
            else:
                control = named.get(entry.name, _NO_CONTROL)
                models[entry.name] = self._described(entry, control, last)
        if named is not None:
            self._totals = MappingProxyType(
                {name: _totals(control) for name, control in named.items() if name in models}
            )
        return MappingProxyType(models)

    def _described(
        self,
        entry: inference_pb2.RepositoryIndexResponse.ModelIndex,
        control: control_pb2.ModelControl,
        last: ModelView | None,
    ) -> ModelView:
        known = None if last is None else last.seconds_per_item
        batched = bool(control.max_batch_size and control.batch_input)
        return ModelView(
            entry.name,
            entry.state,
            clip(entry.reason),
            idempotent=control.idempotent,
            batch_input=control.batch_input if batched else None,
            batch_axis=control.batch_axis if batched else 0,
            max_batch_size=control.max_batch_size if batched else 0,
            seconds_per_item=seconds_per_item(self._totals.get(entry.name), _totals(control), known),
            weight_bytes=control.weight_bytes,
            pinned=control.residency == "device",
        )


def _carried(entry: inference_pb2.RepositoryIndexResponse.ModelIndex, last: ModelView | None) -> ModelView:
    if last is None:
        return ModelView(entry.name, entry.state, clip(entry.reason))
    return replace(last, state=entry.state, reason=clip(entry.reason))


def _totals(control: control_pb2.ModelControl) -> Totals:
    return Totals(control.compute_seconds, control.rows_served)
