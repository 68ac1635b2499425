"""What a manifest on disk says, told before anything of its bundle is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.files import read_small
from reactant_core.bundle.repository import MANIFEST
from reactant_core.bundle.yaml_safe import MAX_BYTES, YamlError, parse_yaml


def declares_internal(bundle: Path) -> bool:
    """Whether the manifest in the directory `bundle` says `internal: true`, whatever else is wrong with it.

    False when it cannot be read. Blocks.
    """
    return _manifest(bundle, b"internal").get("internal") is True


def declared_calls(bundle: Path) -> tuple[str, ...]:
    """The models that the meta in the directory `bundle` calls; none for a model, or for a faulty manifest.

    Blocks.
    """
    meta = _manifest(bundle, b"calls").get("meta")
    calls = meta.get("calls") if isinstance(meta, dict) else None
    return tuple(name for name in calls if isinstance(name, str)) if isinstance(calls, list) else ()


def _manifest(bundle: Path, word: bytes) -> dict[Any, Any]:
    """The manifest as YAML, empty unless `word` is in it: most need not be parsed."""
    try:
        data = read_small(bundle / MANIFEST, MAX_BYTES)
        document = parse_yaml(data).value if word in data else None
    except (BundleError, YamlError, OSError):
        return {}
    return document if isinstance(document, dict) else {}
