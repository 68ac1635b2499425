"""What holds for a model by name: as configured, and over that what was set by request."""

from __future__ import annotations

from typing import final

from reactant_core.config.sections import ModelSchedulingConfig, Residency, SchedulerConfig
from reactant_policy.scheduling.scheduler import ModelTerms
from reactant_worker.models.served import ServedModel

_DEFAULT_RESIDENCY: Residency = "system"


@final
class ModelPolicies:
    """Weights, residency floors and batching bounds of every name, loaded or not.

    What is set here holds for later versions of the name as well, until the process ends.
    """

    def __init__(self, scheduler: SchedulerConfig) -> None:
        self._scheduler = scheduler
        self._weights: dict[str, float] = {}
        self._residencies: dict[str, Residency] = {}

    def weight(self, model: str) -> float:
        """Share of device time under contention, relative to the other models."""
        return self._weights.get(model, self._configured(model).weight)

    def set_weight(self, model: str, weight: float) -> None:
        """Puts `weight` over the configured one."""
        self._weights[model] = weight

    def residency(self, model: str) -> Residency:
        """The floor that the model's weights never fall below."""
        configured = self._configured(model).residency or _DEFAULT_RESIDENCY
        return self._residencies.get(model, configured)

    def set_residency(self, model: str, residency: Residency) -> None:
        """Puts `residency` over the configured one."""
        self._residencies[model] = residency

    def max_batch_size(self, model: ServedModel) -> int:
        """Most rows coalesced into one dispatch: what is set, at most the largest compiled size."""
        return min(self._configured(model.name).max_batch_size or model.largest, model.largest)

    def max_queue_delay_ms(self, model: str) -> float:
        """Longest that a batch waits to be filled."""
        return self._configured(model).max_queue_delay_ms

    def terms(self, model: ServedModel) -> ModelTerms:
        """What the scheduler has to know of a version that is about to serve."""
        return ModelTerms(
            sizes=model.sizes,
            coalesces=model.bundle.manifest.batched,
            max_batch_size=self.max_batch_size(model),
            weight=self.weight(model.name),
            max_queue_delay_seconds=self.max_queue_delay_ms(model.name) / 1000,
        )

    def _configured(self, model: str) -> ModelSchedulingConfig:
        return self._scheduler.model(model)
