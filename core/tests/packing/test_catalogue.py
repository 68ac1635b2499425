"""Routing table and settings turned into what a placement is made of."""

from __future__ import annotations

from reactant_core.config.gateway_sections import ModelRoutingConfig, SchedulingConfig
from reactant_core.packing.catalogue import (
    FleetReader,
    fills,
    missing,
    placeables,
    rooms,
    unfit,
    unknown,
    wanted,
)
from reactant_policy.placement.model import WorkerRoom
from reactant_policy.placement.packing import Placeable
from reactant_policy.routing.packed import Fill
from reactant_policy.routing.table import ModelView, RoutingTable, WorkerView, build_table, with_worker

CONFIG = SchedulingConfig(
    default_replicas=1,
    routing_fill_factor=2.0,
    models={
        "n": ModelRoutingConfig(replicas="all", fill_mode="spread"),
        "o": ModelRoutingConfig(replicas=3),
        "gone": ModelRoutingConfig(fill_factor=0.5),
    },
)


def worker(name: str, *models: ModelView, discipline: str = "fifo", available: bool = True) -> WorkerView:
    return WorkerView(name, available, {m.name: m for m in models}, discipline, 100)


def model(name: str, weight: int = 10, **more: object) -> ModelView:
    return ModelView(
        name, str(more.get("state", "READY")), weight_bytes=weight, pinned=bool(more.get("pinned"))
    )


def table() -> RoutingTable:
    return build_table(
        [
            worker("a", model("m"), model("n"), model("o", 7)),
            worker("b", model("m", 12, pinned=True), model("n", state="LOADING"), model("o", 7)),
            worker("c", model("m"), model("n"), discipline="edf"),
            worker("fair", model("m"), model("only"), discipline="fair"),
            worker("other", model("m"), discipline=""),
            worker("away", model("m"), available=False),
        ]
    )


def test_models_are_placed_where_they_are_ready_on_workers_that_fit() -> None:
    found = table()
    fleet = FleetReader().read(found)
    assert fleet.workers == {"a", "b", "c"}
    assert sorted(placeables(found, fleet, CONFIG), key=lambda one: one.name) == [
        Placeable("m", 12, ("a", "b", "c"), ("b",), 1),
        Placeable("n", 10, ("a", "c"), (), None),
        Placeable("o", 7, ("a", "b"), (), 3),
    ]
    assert rooms(found, fleet) == [WorkerRoom(name, 100) for name in "abc"]


def test_what_is_said_of_it() -> None:
    found = table()
    fleet = FleetReader().read(found)
    (sentence,) = missing(fleet)
    assert sentence.endswith("placed on those that have them: n (2 of 3), o (2 of 3)")
    (wrong,) = unfit(found.workers.values())
    assert wrong.startswith(
        "fair runs scheduler.discipline fair, and scheduling.mode lpt_packing needs fifo or edf"
    )
    (silent,) = unknown(found.workers.values())
    assert silent.startswith("other does not tell its discipline")


def test_many_workers_of_one_discipline_are_one_short_sentence() -> None:
    views = [worker(f"w{index:02}", discipline="fair" if index else "strange") for index in range(12)]
    fair, strange = unfit(views)
    assert fair.startswith(
        "w01, w02, w03, w04, w05, w06, w07, w08 and 3 more run scheduler.discipline fair, "
    )
    assert strange.startswith("w00 runs scheduler.discipline strange, ")


def test_many_missing_models_are_one_short_sentence() -> None:
    found = build_table(
        [worker("a", *(model(f"m{index:03}") for index in range(300))), worker("b", discipline="edf")]
    )
    (sentence,) = missing(FleetReader().read(found))
    assert "m007 (1 of 2) and 292 more" in sentence


def test_the_fleet_is_the_same_object_while_nothing_of_it_changed() -> None:
    reader = FleetReader()
    found = table()
    fleet = reader.read(found)
    assert reader.read(found) is fleet
    cost = ModelView("m", "READY", seconds_per_item=0.5)
    again = with_worker(found, worker("a", cost, model("n"), model("o", 7)))
    assert again.routes["m"] != found.routes["m"]
    assert reader.read(again) is fleet
    less = reader.read(with_worker(again, worker("a", model("n"), model("o", 7))))
    assert less.eligible["m"] == ("b", "c")


def test_a_worker_that_loads_what_it_had_is_on_its_way_back() -> None:
    reader = FleetReader()
    gone = reader.read(build_table([worker("a"), worker("b", model("m"), available=False)]))
    loading = worker("b", model("m", state="LOADING"), model("n"), available=False)
    back = reader.read(build_table([worker("a"), loading]))
    assert [(sorted(fleet.away), sorted(fleet.returning)) for fleet in (gone, back)] == [
        (["b"], []),
        (["b"], ["b"]),
    ]


def test_settings_of_one_model_go_over_those_of_all() -> None:
    assert (wanted(CONFIG, "m"), wanted(CONFIG, "n"), wanted(CONFIG, "o")) == (1, None, 3)
    assert fills(CONFIG) == {"n": Fill("spread", 2.0), "gone": Fill("run", 0.5)}
