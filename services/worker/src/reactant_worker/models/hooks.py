"""A bundle's `model.py`: plain functions around the program.

The code runs with the server's rights: bundles are trusted.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, cast, final

from numpy.typing import NDArray

from reactant_core.bundle.manifest import Manifest
from reactant_core.bundle.repository import Bundle
from reactant_core.errors import InternalError, InvalidArgument
from reactant_core.logs import get_logger

_log = get_logger(__name__)
_serial = itertools.count()

Tensors = Mapping[str, NDArray[Any]]
Hook = Callable[[dict[str, NDArray[Any]], "HookRequest"], Any]


class HookRefusal(Exception):
    """Raised by `HookRequest.invalid`."""


@final
@dataclass(frozen=True, slots=True)
class HookRequest:
    """What a hook may know of the request it works for.

    Attributes:
        id: the request's id, verbatim.
        parameters: request parameters that are not reserved, read-only.
        priority: the `priority` parameter, 0 when absent.
        deadline: monotonic seconds (`time.monotonic`), None without one.
    """

    id: str
    parameters: Mapping[str, bool | int | str | float]
    priority: int
    deadline: float | None

    def invalid(self, message: str) -> NoReturn:
        """Ends the request with INVALID_ARGUMENT and this message."""
        raise HookRefusal(message)


@final
@dataclass(frozen=True, slots=True)
class HookBundle:
    """What `setup` gets: where the bundle's files lie, and its manifest."""

    path: Path
    manifest: Manifest


@final
class Hooks:
    """The functions of one loaded `model.py`."""

    def __init__(self, model: str, module: ModuleType) -> None:
        self._model = model
        self._module = module
        self.preprocess = self._function("preprocess")
        self.postprocess = self._function("postprocess")

    @property
    def module_name(self) -> str:
        """The unique name the module is imported under."""
        return self._module.__name__

    def _function(self, name: str) -> Hook | None:
        found = getattr(self._module, name, None)
        if found is not None and not callable(found):
            raise TypeError(f"model.py: {name} must be a function, not {type(found).__name__}")
        return cast(Hook | None, found)

    def setup(self, bundle: HookBundle) -> None:
        """Runs `setup`, where there is one; whatever it raises goes to the caller."""
        function = getattr(self._module, "setup", None)
        if function is not None:
            function(bundle)

    def run(self, stage: str, tensors: Tensors, request: HookRequest) -> dict[str, Any]:
        """Runs `preprocess` or `postprocess` on the calling thread; a missing one is the identity.

        Raises InvalidArgument when the hook refused the request, InternalError for anything else
        it raised or for a return value that is not a mapping of names.
        """
        hook = self.preprocess if stage == "preprocess" else self.postprocess
        if hook is None:
            return dict(tensors)
        try:
            result = hook(dict(tensors), request)
        except HookRefusal as refusal:
            raise InvalidArgument(f"model '{self._model}': {refusal}") from None
        except BaseException as error:  # also SystemExit: a request must not end the worker
            _log.exception("hook failed", model=self._model, hook=stage, request=request.id)
            raise InternalError(
                f"model '{self._model}': {stage} raised {type(error).__name__}: {error}"
            ) from None
        if not isinstance(result, Mapping) or not all(isinstance(key, str) for key in result):
            kind = type(result).__name__
            _log.error("hook returned no dict of name to array", model=self._model, hook=stage, returned=kind)
            raise InternalError(
                f"model '{self._model}': {stage} returned {kind}, expected a dict of name to array"
            )
        return dict(result)

    def close(self) -> None:
        """Leaves nothing of the module behind."""
        sys.modules.pop(self.module_name, None)


def load_hooks(bundle: Bundle) -> Hooks | None:
    """Imports `model.py` fresh under a unique name and runs its `setup`; None without the file."""
    if bundle.hooks is None:
        return None
    name = f"reactant_bundle_{next(_serial)}"
    spec = importlib.util.spec_from_file_location(name, bundle.hooks)
    if spec is None or spec.loader is None:
        raise ImportError(f"{bundle.hooks.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Registered while it lives: dataclasses and pickle look classes up by module name.
    sys.modules[name] = module
    try:
        # Compiled from the source each time: a bytecode file beside the bundle could be stale, and
        # the model repository may be read-only.
        code = compile(bundle.hooks.read_bytes(), str(bundle.hooks), "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - bundles are trusted code
        hooks = Hooks(bundle.name, module)
        hooks.setup(HookBundle(bundle.path, bundle.manifest))
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return hooks
