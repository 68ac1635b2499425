"""Where in Redis the state of a fleet is. Names are a wire contract: see docs/registry-keys.md.

All of one fleet's keys have one hash tag, so that one script may touch them all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, final

SCHEMA: Final = 1
"""Of what is written; only ever added to within one number."""
MIN_READER: Final = 1
"""The lowest `SCHEMA` that a reader must know to understand it."""

FLEET_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")

WORKERS: Final = "workers"
"""Worker key → JSON, see `records.WorkerRecord`."""
EXPECTED: Final = "expected"
"""Worker key → "1", of those known before this generation that are not back yet."""
DRAINS: Final = "drains"
"""Worker key → JSON, see `records.DrainRecord`: operators' drains, which belong to the name."""
OVERRIDES: Final = "overrides"
"""Model → JSON object with any of replicas, fill_mode, fill_factor."""
POLICY: Final = "policy"
"""Key of `SchedulingConfig` but `models` → JSON value, of those that were set while running."""
PLACEMENT: Final = "placement"
"""Model → JSON list of worker keys, sorted."""
CATALOGUES: Final = "catalogues"
"""Digest → serialized `reactant.Catalogue`."""
REQUESTS: Final = "requests"
"""Command → JSON object with `id` and `by`: what the leader is to do (repack, compact:<worker key>)."""

SECTIONS: Final = (WORKERS, EXPECTED, DRAINS, OVERRIDES, POLICY, PLACEMENT, CATALOGUES, REQUESTS)
"""Hashes whose every change has a revision and is named in the change log."""


@final
@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one fleet; ValueError for a name that no fleet can have."""

    fleet: str

    def __post_init__(self) -> None:
        if not FLEET_NAME.fullmatch(self.fleet):
            raise ValueError(
                f"fleet {self.fleet!r}: accepted are 1 to 63 letters, digits, dots, dashes and underscores, "
                "the ends letters or digits"
            )

    def of(self, name: str) -> str:
        """The key of a section, or of any other name below."""
        return f"reactant:{{{self.fleet}}}:{name}"

    @property
    def meta(self) -> str:
        """Hash: schema, min_reader, generation, revision, settled (0, 1), run_id, replid, epoch, fence."""
        return self.of("meta")

    @property
    def leader(self) -> str:
        """String with a TTL: `owner:fence:address`."""
        return self.of("leader")

    @property
    def changes(self) -> str:
        """Capped stream with the ids `revision-0` and one field `names`: a JSON list of `section:field`.

        `section:*` means that all of the section is to be read anew.
        """
        return self.of("changes")

    @property
    def events(self) -> str:
        """Capped stream of what happened, for people: kind, subject, detail, by, at (ISO 8601), revision."""
        return self.of("events")

    @property
    def beats(self) -> str:
        """Hash: worker key → `epoch:seq`. Telemetry: no revision."""
        return self.of("beats")

    @property
    def gateways(self) -> str:
        """Hash: gateway id → JSON, see `records.GatewayRecord`. Telemetry."""
        return self.of("gateways")

    @property
    def telemetry(self) -> str:
        """Capped stream of what workers and gateways counted, for the leader. Telemetry.

        Fields: `worker` or `gateway`, each a serialized HeartbeatRequest or ReportDemandRequest; several
        entries are written together.
        """
        return self.of("telemetry")

    @property
    def status(self) -> str:
        """String: serialized GetSchedulingStatusResponse of the leader, as of its last second. Telemetry."""
        return self.of("status")

    @property
    def channel(self) -> str:
        """Pub/sub channel: `generation revision`, with every change and every second."""
        return self.of("revision")
