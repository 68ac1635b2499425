"""The digest of a worker's models, kept up to date by what changes.

The digest is the sum modulo 2^256 of a hash of each element (Bellare and Micciancio, "A New Paradigm for
Collision-free Hashing", 1997): one changed model of thousands costs two hashes, and their order does not
matter. Members are trusted: it finds what got out of step, and is no defence against forgery.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final, final

from reactant_proto import registry_pb2

_MODULUS: Final = 1 << 256

EMPTY_DIGEST: Final = "0" * 64


def line(model: registry_pb2.CatalogueModel) -> bytes:
    """What of a model goes into the digest: its fields in the order of their numbers, as compact JSON."""
    return json.dumps(
        [
            model.name,
            model.version,
            model.state,
            model.reason,
            model.residency,
            model.weight_bytes,
            model.max_batch_size,
            model.batch_input,
            model.batch_axis,
            model.idempotent,
        ],
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()


@final
class CatalogueBook:
    """One worker's models and their digest."""

    __slots__ = ("_hashes", "_models", "_sum")

    def __init__(self, models: Iterable[registry_pb2.CatalogueModel] = ()) -> None:
        self._models: dict[str, registry_pb2.CatalogueModel] = {}
        self._hashes: dict[str, int] = {}
        self._sum = 0
        self.change(models)

    @property
    def models(self) -> Mapping[str, registry_pb2.CatalogueModel]:
        """By name. Not to be changed."""
        return self._models

    @property
    def digest(self) -> str:
        """64 hexadecimal digits."""
        return f"{self._sum:064x}"

    def change(
        self, changed: Iterable[registry_pb2.CatalogueModel] = (), removed: Iterable[str] = ()
    ) -> None:
        """Takes in models as they are now; names that are not there are removed already."""
        for name in removed:
            if self._models.pop(name, None) is not None:
                self._sum = (self._sum - self._hashes.pop(name)) % _MODULUS
        for model in changed:
            hashed = int.from_bytes(hashlib.sha256(line(model)).digest(), "big")
            self._sum = (self._sum - self._hashes.get(model.name, 0) + hashed) % _MODULUS
            self._models[model.name], self._hashes[model.name] = model, hashed

    def differences(
        self, models: Iterable[registry_pb2.CatalogueModel]
    ) -> tuple[list[registry_pb2.CatalogueModel], list[str]]:
        """What `change` must be told so that this has exactly `models`: those changed, and names gone."""
        wanted = {model.name: model for model in models}
        changed = [model for name, model in wanted.items() if self._models.get(name) != model]
        return changed, [name for name in self._models if name not in wanted]

    def message(self) -> registry_pb2.Catalogue:
        """Sorted by name."""
        return registry_pb2.Catalogue(models=[self._models[name] for name in sorted(self._models)])
