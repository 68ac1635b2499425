"""The three lists that say where a gateway's workers are, against each other."""

from __future__ import annotations

from collections.abc import Mapping

from reactant_core.config.addresses import UNIX_PREFIX
from reactant_core.config.document import Document, KeyPath, dotted
from reactant_core.config.faults import Fault

GATEWAY_LISTS = {
    "endpoints": "REACTANT_GATEWAY_WORKERS",
    "metrics_endpoints": "REACTANT_GATEWAY_METRICS_ENDPOINTS",
    "worker_names": "REACTANT_GATEWAY_WORKER_NAMES",
}
"""The key of each list and the variable that sets it."""


def list_faults(lists: Mapping[str, tuple[str, ...]], document: Document | None) -> list[Fault]:
    """Items listed twice, and lists that are not as long as that of the endpoints.

    Args:
        lists: by key; one that is missing could not be read and is not compared.
        document: where the lists stand; None is the environment.
    """
    faults = [
        _fault(document, (key, index), f"{items[index]!r} is listed twice")
        for key, items in lists.items()
        for index in _repeated([item if key == "worker_names" else _same(item) for item in items])
    ]
    if "endpoints" not in lists:
        return faults
    count = len(lists["endpoints"])
    endpoints = "endpoints" if document is not None else GATEWAY_LISTS["endpoints"]
    for key in ("metrics_endpoints", "worker_names"):
        length = len(lists.get(key, ()))
        if length not in (0, count):
            problem = (
                f"holds {length}, but {endpoints} holds {count}; accepted is one for each of them, or none"
            )
            faults.append(_fault(document, (key,), problem))
    return faults


def _same(address: str) -> str:
    return address if address.startswith(UNIX_PREFIX) else address.lower()


def _repeated(items: list[str]) -> list[int]:
    return [index for index, item in enumerate(items) if item in items[:index]]


def _fault(document: Document | None, path: KeyPath, problem: str) -> Fault:
    if document is not None:
        return Fault(dotted(path), problem, document.source(path))
    name = GATEWAY_LISTS[str(path[0])]
    return Fault(name, problem, name)
