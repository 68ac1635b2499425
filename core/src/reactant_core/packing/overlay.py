"""Scheduling settings changed while the gateway runs, over those of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from pydantic import ValidationError

from reactant_core.config.accepted import faults_of, known_keys, nearest
from reactant_core.config.gateway_sections import ModelRoutingConfig, SchedulingConfig
from reactant_core.errors import InvalidArgument

_MODELS: Final = "models"
_POLICY: Final = tuple(key for key in known_keys(SchedulingConfig) if key != _MODELS)


@final
class Overlay:
    """The settings in force. A change lasts until the configuration itself changes the same key."""

    __slots__ = ("_base", "_models", "_policy", "_value")

    def __init__(self, base: SchedulingConfig) -> None:
        self._base = base
        self._policy: dict[str, Any] = {}
        self._models: dict[str, dict[str, Any]] = {}
        self._value = base

    @property
    def value(self) -> SchedulingConfig:
        """The settings in force."""
        return self._value

    def rebase(self, base: SchedulingConfig) -> tuple[str, ...]:
        """Takes over another configuration; returns the dotted keys of changes that it replaced."""
        before, self._base = self._base, base
        dropped = [key for key in self._policy if getattr(before, key) != getattr(base, key)]
        for key in dropped:
            del self._policy[key]
        for model, own in list(self._models.items()):
            old, new = _own(before, model), _own(base, model)
            for key in [key for key in own if getattr(old, key) != getattr(new, key)]:
                del own[key]
                dropped.append(f"{_MODELS}.{model}.{key}")
            if not own:
                del self._models[model]
        self._settle(self._policy, self._models)
        return tuple(dropped)

    def set_policy(self, changes: Mapping[str, object]) -> None:
        """Changes settings of all models.

        Raises:
            InvalidArgument: a key that is none or a value that is not accepted, all of them named, or no
                change at all; nothing was changed.
        """
        if not changes:
            raise InvalidArgument(f"nothing to change; known are {', '.join(_POLICY)}")
        self.check_policy(changes)
        self._settle({**self._policy, **changes}, self._models)

    def check_policy(self, changes: Mapping[str, object]) -> None:
        """Raises what `set_policy` would for these changes, if it would."""
        faults = [_unknown(key) for key in changes if key not in _POLICY]
        given = {key: value for key, value in changes.items() if key in _POLICY}
        faults += _faults(SchedulingConfig, given)
        if faults:
            raise InvalidArgument("; ".join(faults))

    def set_model(self, model: str, changes: Mapping[str, object]) -> None:
        """Changes settings of one model.

        Raises:
            InvalidArgument: a value that is not accepted, all of them named, or no change at all; nothing
                was changed.
        """
        if not changes:
            known = ", ".join(known_keys(ModelRoutingConfig))
            raise InvalidArgument(f"model '{model}': nothing to change; known are {known}")
        faults = _faults(ModelRoutingConfig, changes)
        if faults:
            raise InvalidArgument(f"model '{model}': {'; '.join(faults)}")
        own = {**self._models.get(model, {}), **changes}
        self._settle(self._policy, {**self._models, model: own})

    def _settle(self, policy: dict[str, Any], models: dict[str, dict[str, Any]]) -> None:
        merged = dict(self._base.models)
        for model, own in models.items():
            # Validated, unlike a copy with updates, so that "2" is 2 here too.
            tree = {**_own(self._base, model).model_dump(exclude_unset=True), **own}
            merged[model] = ModelRoutingConfig.model_validate(tree)
        base = self._base.model_dump(exclude={_MODELS})
        self._value = SchedulingConfig.model_validate({**base, **policy, _MODELS: merged})
        self._policy, self._models = policy, models


def _own(config: SchedulingConfig, model: str) -> ModelRoutingConfig:
    return config.models.get(model) or ModelRoutingConfig()


def _unknown(key: str) -> str:
    near = nearest(key, _POLICY)
    if key == _MODELS:
        return f"{_MODELS} are set one at a time"
    return f"{key}: unknown" + (f" (did you mean {near}?)" if near else f"; known are {', '.join(_POLICY)}")


def _faults(model: type[SchedulingConfig | ModelRoutingConfig], given: Mapping[str, object]) -> list[str]:
    try:
        model.model_validate(dict(given))
    except ValidationError as error:
        return [f"{fault.key} = {fault.problem}" for fault in faults_of(error, model, lambda _: "")]
    return []
