"""The host of the scheduling: puts a mode in force, and keeps placements up to date in `lpt_packing`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, final

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_core.errors import FailedPrecondition
from reactant_core.logs import get_logger
from reactant_core.packing import catalogue
from reactant_core.packing.aside import in_thread
from reactant_core.packing.board import Board
from reactant_core.packing.compaction import Compaction
from reactant_core.packing.notices import Notices
from reactant_core.packing.planner import Planner
from reactant_policy.placement.model import Plan
from reactant_policy.placement.packing import Repack, Trigger
from reactant_policy.routing.spread import SPREADS
from reactant_policy.routing.work import Totals

LPT_PACKING: Final = "lpt_packing"
TICK_SECONDS: Final = 1.0

_AFTER_FAILURE_SECONDS: Final = 10.0
# A worker's entry costs some ten microseconds to read: one in fifty of the loop's time at most.
_SECONDS_PER_ENTRY: Final = 0.0005
# Readings of more entries than these are taken in a worker at a time, requests between them.
_ENTRIES_AT_ONCE: Final = 2_000

_log = get_logger(__name__)

Readings = Mapping[str, Mapping[str, Totals]]


@final
class Packer:
    """Follows the settings in force. Lives on the event loop; placements are planned in a thread.

    Attributes:
        planner: what is measured and placed; None outside of `lpt_packing`.
        notices: what an operator should know.
    """

    def __init__(
        self,
        config: SchedulingConfig,
        *,
        board: Board,
        totals: Callable[[], Readings],
        probe_every: Callable[[float | None], None],
        compact: Callable[[Collection[str]], None],
        standing: Sequence[str] = (),
        publish: Callable[[Plan], Awaitable[None]] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        """Puts the mode of `config` in force.

        Args:
            config: settings in force.
            board: told how to route.
            totals: the counters of every worker as they were last read; an object is replaced when it is new.
            probe_every: how often the workers should be read at least, seconds; None: as configured.
            compact: has these workers compact their device memory; returns at once.
            standing: what an operator should know for as long as the mode is `lpt_packing`.
            publish: tells others of a plan before it comes into force here; it does not when this raises
                FailedPrecondition.
            clock: measures what lies between two placements.
            tick_seconds: between two looks at counters and members.
        """
        self._config = config
        self._board = board
        self._totals = totals
        self._probe_every = probe_every
        self._clock = clock
        self._tick = tick_seconds
        self._standing = standing
        self._publish = publish
        self._compaction = Compaction(compact)
        self.notices = Notices()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._wanted = False
        self._waiting: list[asyncio.Future[Repack]] = []
        self._every: float | None = None
        self._repacks: dict[str, int] = {}
        self.planner: Planner | None = None
        self._enter()

    @property
    def config(self) -> SchedulingConfig:
        """The settings in force."""
        return self._config

    @property
    def repacks(self) -> Mapping[str, int]:
        """How many placements came into force, by trigger."""
        return self._repacks

    def seconds_since_placed(self) -> float:
        """Age of the placement in force; 0 without one."""
        if self.planner is None or self.planner.last is None:
            return 0.0
        return self._clock.monotonic() - self.planner.placed_at

    def follow(self, config: SchedulingConfig) -> None:
        """Puts other settings in force; those that change placements have one made at once."""
        before, self._config = self._config, config
        if config.mode != before.mode:
            self._enter()
            return
        planner = self.planner
        if planner is None:
            if config.work_basis != before.work_basis:
                self._board.follow(SPREADS[config.mode](), config.work_basis)
            return
        planner.follow(config)
        if config.work_basis != before.work_basis:
            self._board.follow(planner.packed, config.work_basis)
        if _placement(config) != _placement(before):
            self._want()
        self._wake.set()

    def _enter(self) -> None:
        config = self._config
        if config.mode == LPT_PACKING:
            self.planner = Planner(config)
            self._board.follow(self.planner.packed, config.work_basis)
            for sentence in self._standing:
                self.notices.stand(sentence)
            self._want()
            return
        left, self.planner = self.planner, None
        self._board.follow(SPREADS[config.mode](), config.work_basis)
        if left is not None:
            self._read_every(None)
            self.notices.clear()
            self._refuse(FailedPrecondition(f"scheduling.mode is {config.mode} now: there are no placements"))
            self._settle()

    def read_as_before(self) -> None:
        """To be called after another configuration has set how often workers are read."""
        every, self._every = self._every, None
        self._read_every(every)

    async def repack(self) -> Repack:
        """Places anew with what is known now; whoever asks before that begins shares it.

        Raises:
            FailedPrecondition: the mode is not `lpt_packing`, or no worker takes placements.
        """
        if self.planner is None:
            raise FailedPrecondition(
                f"scheduling.mode is {self._config.mode}: there are placements in {LPT_PACKING} alone"
            )
        future: asyncio.Future[Repack] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._want()
        return await future

    async def settled(self) -> None:
        """Returns when no placement is being made or wanted. Needs `run` to run."""
        while not self._idle.is_set():
            await self._idle.wait()

    async def run(self) -> None:
        """Measures and places until cancelled; a fault of ours leaves the placement in force as it is."""
        while True:
            try:
                await self._step()
            except Exception as error:
                _log.exception("placing models failed, the placement in force stays")
                self._wanted = False
                self._refuse(FailedPrecondition(f"placing models failed: {error!r}"))
                self._settle()
                await asyncio.sleep(_AFTER_FAILURE_SECONDS)
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._tick if self.planner is not None else None):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _step(self) -> None:
        planner = self.planner
        if planner is None:
            return
        table = self._board.table
        self._read_every(_period(sum(len(view.models) for view in table.workers.values())))
        await self._observe(planner)
        if planner is not self.planner:
            return
        fleet = planner.look(table)
        self.notices.looked(table)
        trigger = planner.due(self._clock.monotonic())
        if self._wanted and fleet.workers:
            trigger = "start" if planner.last is None else "request"
        if trigger is not None:
            await self._place(planner, trigger)
        elif self._wanted:
            self._wanted = False
            self._refuse(FailedPrecondition("no worker takes placements now"))
            self._settle()

    async def _observe(self, planner: Planner) -> None:
        now = self._clock.monotonic()
        new = planner.unread(self._totals())
        if sum(map(len, new.values())) <= _ENTRIES_AT_ONCE:
            planner.observe(now, self._board.arrivals, new)
            return
        planner.observe(now, self._board.arrivals, {})
        for worker, read in new.items():
            await asyncio.sleep(0)
            planner.observe(now, {}, {worker: read})

    async def _place(self, planner: Planner, trigger: Trigger) -> None:
        self._wanted = False
        self._idle.clear()
        waiting, self._waiting = self._waiting, []
        table = self._board.table
        fleet = planner.look(table)
        begun = self._clock.monotonic()
        try:
            proposal = await in_thread(partial(planner.propose, begun, table, fleet, self._config, trigger))
            if planner is not self.planner:
                raise FailedPrecondition(f"scheduling.mode is {self._config.mode} now")
            if self._publish is not None:
                await self._publish(proposal.plan)
            repack = planner.adopt(proposal, self._clock.monotonic())
        except BaseException as error:
            # Of a fault the askers hear too; only they do when the mode was left meanwhile.
            told = (
                error if isinstance(error, FailedPrecondition) else FailedPrecondition(f"failed: {error!r}")
            )
            _fail(waiting, told)
            if told is not error:
                raise
            return
        finally:
            self._settle()
        self._repacks[trigger] = self._repacks.get(trigger, 0) + 1
        self._say(repack, self._clock.monotonic() - begun)
        self.notices.placed([*catalogue.missing(fleet), *repack.plan.warnings])
        self._compaction.placed(repack.plan, self._config)
        for future in waiting:
            if not future.done():
                future.set_result(repack)

    def _say(self, repack: Repack, seconds: float) -> None:
        plan = repack.plan
        _log.info(
            "lpt_packing: repack",
            trigger=repack.trigger,
            placed=plan.placed,
            moved=len(plan.moves),
            held=plan.held,
            best_gain=round(plan.best_gain, 4),
            compute_seconds=round(repack.compute_seconds, 3),
            wall_seconds=round(repack.wall_seconds, 3),
            bytes_moved=plan.bytes_moved,
            imbalance_before=round(plan.imbalance_before, 4),
            imbalance_after=round(plan.imbalance_after, 4),
            planning_seconds=round(seconds, 4),
        )

    def _want(self) -> None:
        self._wanted = True
        self._idle.clear()
        self._wake.set()

    def _settle(self) -> None:
        if not self._wanted or self.planner is None:
            self._wanted = False
            self._idle.set()

    def _refuse(self, error: FailedPrecondition) -> None:
        waiting, self._waiting = self._waiting, []
        _fail(waiting, error)

    def _read_every(self, seconds: float | None) -> None:
        if seconds != self._every:
            self._every = seconds
            self._probe_every(seconds)


def _fail(waiting: list[asyncio.Future[Repack]], error: FailedPrecondition) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(error)


def _period(entries: int) -> float:
    """Seconds between two readings of a worker in a fleet of so many entries, in steps of a quarter."""
    return max(1.0, round(entries * _SECONDS_PER_ENTRY * 4) / 4)


def _placement(config: SchedulingConfig) -> object:
    """What of the settings a placement depends on."""
    own = {name: model.replicas for name, model in config.models.items() if model.replicas is not None}
    return own, config.default_replicas, config.hysteresis, config.forbid_memory_oversubscription
