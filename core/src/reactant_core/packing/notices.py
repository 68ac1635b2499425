"""What an operator should know of the placement: logged once each, kept for whoever looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from reactant_core.logs import get_logger
from reactant_core.packing.catalogue import unfit, unknown
from reactant_policy.routing.table import RoutingTable

_log = get_logger(__name__)


@final
class Notices:
    """Sentences that hold now; one that comes back after it had gone is logged again."""

    __slots__ = ("_placement", "_standing", "_table", "_workers")

    def __init__(self) -> None:
        self._table: RoutingTable | None = None
        self._workers: tuple[str, ...] = ()
        self._placement: tuple[str, ...] = ()
        self._standing: tuple[str, ...] = ()

    @property
    def now(self) -> tuple[str, ...]:
        """All that hold, without order."""
        return (*self._standing, *self._workers, *self._placement)

    def stand(self, sentence: str) -> None:
        """Something that holds as long as the mode does."""
        if sentence not in self._standing:
            self._standing = (*self._standing, sentence)
            _log.warning(sentence)

    def looked(self, table: RoutingTable) -> None:
        """Says which workers get no placements because of their discipline."""
        if table is self._table:
            return
        self._table = table
        views = table.workers.values()
        wrong = [f"{sentence}; no model is placed there" for sentence in unfit(views)]
        silent = unknown(views)
        for sentence in wrong:
            if sentence not in self._workers:
                _log.error(sentence)
        for sentence in silent:
            if sentence not in self._workers:
                _log.warning(sentence)
        self._workers = (*wrong, *silent)

    def placed(self, sentences: Sequence[str]) -> None:
        """What is to be said of the placement that came into force."""
        for sentence in sentences:
            if sentence not in self._placement:
                _log.warning(sentence)
        self._placement = tuple(sentences)

    def clear(self) -> None:
        """The mode was left."""
        self._table = None
        self._workers = self._placement = self._standing = ()
