"""A bundle's `model.py`: plain functions around the program, or the one that is a meta.

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
from typing import Any, NoReturn, final

from numpy.typing import NDArray

from reactant_core.bundle.manifest import Manifest
from reactant_core.bundle.repository import Bundle
from reactant_core.errors import InternalError, InvalidArgument, ServingError
from reactant_core.logs import get_logger

_log = get_logger(__name__)
_serial = itertools.count()

Tensors = Mapping[str, NDArray[Any]]
Hook = Callable[[dict[str, NDArray[Any]], "HookRequest"], Any]
MetaRun = Callable[[dict[str, NDArray[Any]], Any, "HookRequest"], Any]

RUN = "run"
"""The function of `model.py` that is a meta."""


class HookRefusal(Exception):
    """Raised by `HookRequest.invalid`."""


@final
class RequestOver(BaseException):
    """Raised inside a meta whose request has its answer already: not for its code to catch."""


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

    def __init__(self, model: str, module: ModuleType, *, meta: bool = False) -> None:
        self._model = model
        self._module = module
        self.preprocess: Hook | None = None if meta else self._function("preprocess")
        self.postprocess: Hook | None = None if meta else self._function("postprocess")
        self.meta_run: MetaRun | None = self._function(RUN) if meta else None

    @property
    def module_name(self) -> str:
        """The unique name the module is imported under."""
        return self._module.__name__

    def _function(self, name: str) -> Any:
        found = getattr(self._module, name, None)
        if found is not None and not callable(found):
            raise TypeError(f"model.py: {name} must be a function, not {type(found).__name__}")
        return found

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
        return self._named(stage, request, lambda: hook(dict(tensors), request))

    def run_meta(self, tensors: Tensors, call: Any, request: HookRequest) -> dict[str, Any]:
        """Runs a meta's `run` on the calling thread; `call` is what it calls models with.

        Raises as `run`, and lets through what `call` raised: `ServingError` and RequestOver.
        """
        function = self.meta_run
        assert function is not None
        return self._named(RUN, request, lambda: function(dict(tensors), call, request))

    def _named(self, stage: str, request: HookRequest, function: Callable[[], Any]) -> dict[str, Any]:
        try:
            result = function()
        except HookRefusal as refusal:
            raise InvalidArgument(f"model '{self._model}': {refusal}") from None
        except BaseException as error:  # also SystemExit: a request must not end the worker
            if stage == RUN and isinstance(error, ServingError | RequestOver):
                raise
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

    def renamed(self, model: str) -> Hooks:
        """The same module under another model's name; one `close` is enough for both."""
        return Hooks(model, self._module, meta=self.meta_run is not None)

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
        hooks = Hooks(bundle.name, module, meta=bundle.manifest.kind == "meta")
        hooks.setup(HookBundle(bundle.path, bundle.manifest))
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return hooks
