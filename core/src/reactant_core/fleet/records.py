"""What a hash in Redis holds for one worker, one drain, one gateway: JSON, so that people can read it.

Keys that a record does not know are passed over: another minor version may have written them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, TypeVar, final

State = Literal["live", "lost", "released", "evicted"]
DrainPhase = Literal["", "draining", "blocked", "releasing"]

SERVING: Final[State] = "live"


class RecordError(ValueError):
    """A value that is no record; names what is missing or wrong."""


@final
@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A member of the fleet.

    Attributes:
        key: `node/name`.
        node: its machine's name.
        node_id: its machine's identity.
        name: its own name on it.
        incarnation: of its process, counted by its machine.
        epoch: of its membership in this generation; never given twice.
        address: gRPC, `host:port`.
        metrics_address: HTTP.
        state: `lost` when its lease ran out; `released` when it left; `evicted` by an operator.
        ready: it takes requests, by its own word.
        leaving: its process was asked to end.
        drain: how far it is being emptied; empty when it is not.
        drain_reason: why that does not go on (`blocked`); empty otherwise.
        drained_at: the revision that gateways must have applied before it refuses requests.
        catalogue: digest of its models.
        discipline: fair, fifo or edf.
        weight_budget_bytes: device memory that weights may fill; 0: no limit.
        gpu: device selector.
        device_kind: such as `NVIDIA H200` or `cpu`.
        version: of its software.
    """

    key: str
    node: str
    node_id: str
    name: str
    incarnation: int
    epoch: int
    address: str
    metrics_address: str = ""
    state: State = SERVING
    ready: bool = False
    leaving: bool = False
    drain: DrainPhase = ""
    drain_reason: str = ""
    drained_at: int = 0
    catalogue: str = ""
    discipline: str = ""
    weight_budget_bytes: int = 0
    gpu: str = ""
    device_kind: str = ""
    version: str = ""

    def to_json(self) -> bytes:
        """As Redis holds it."""
        return _to_json(self)

    @classmethod
    def from_json(cls, data: bytes) -> WorkerRecord:
        """Raises RecordError."""
        return _from_json(cls, data)


@final
@dataclass(frozen=True, slots=True)
class DrainRecord:
    """An operator's wish that a worker be empty; of the name, over restarts.

    Attributes:
        by: who asked.
        reason: why, for people.
        force: go on even where its models have no room elsewhere.
    """

    by: str = ""
    reason: str = ""
    force: bool = False

    def to_json(self) -> bytes:
        """As Redis holds it."""
        return _to_json(self)

    @classmethod
    def from_json(cls, data: bytes) -> DrainRecord:
        """Raises RecordError."""
        return _from_json(cls, data)


@final
@dataclass(frozen=True, slots=True)
class GatewayRecord:
    """A gateway that reports.

    Attributes:
        id: of its process.
        node: its machine's name.
        address: gRPC.
        metrics_address: HTTP.
        version: of its software.
        seq: of its last report.
        generation: that it routes by.
        revision: that it routes by.
    """

    id: str
    node: str = ""
    address: str = ""
    metrics_address: str = ""
    version: str = ""
    seq: int = 0
    generation: str = ""
    revision: int = 0

    def to_json(self) -> bytes:
        """As Redis holds it."""
        return _to_json(self)

    @classmethod
    def from_json(cls, data: bytes) -> GatewayRecord:
        """Raises RecordError."""
        return _from_json(cls, data)


Record = WorkerRecord | DrainRecord | GatewayRecord
R = TypeVar("R", WorkerRecord, DrainRecord, GatewayRecord)


def _to_json(record: Record) -> bytes:
    return json.dumps(asdict(record), ensure_ascii=False, separators=(",", ":")).encode()


def _from_json(kind: type[R], data: bytes) -> R:
    try:
        tree: Any = json.loads(data)
    except ValueError as error:
        raise RecordError(f"{kind.__name__}: not JSON: {error}") from None
    if not isinstance(tree, Mapping):
        raise RecordError(f"{kind.__name__}: not an object")
    known = {field.name: field for field in fields(kind)}
    try:
        record = kind(**{key: value for key, value in tree.items() if key in known})
    except TypeError as error:
        raise RecordError(f"{kind.__name__}: {error}") from None
    for name, field in known.items():
        value = getattr(record, name)
        wanted = {"int": int, "bool": bool}.get(str(field.type), str)
        if type(value) is not wanted:
            raise RecordError(f"{kind.__name__}: {name} is {value!r}, accepted is {wanted.__name__}")
    return record
