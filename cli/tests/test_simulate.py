from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from reactant_cli.main import app

RUNNER = CliRunner()

CATALOGUE = "model,fixed_ms,per_item_ms,max_batch_size,weight_bytes\na,5,0.5,8,1000\nb,2,0.1,,\n"
TRACE = "time,model,items\n" + "".join(f"{n / 100},{'ab'[n % 2]},1\n" for n in range(200))


def reactant(*arguments: str) -> Result:
    return RUNNER.invoke(app, ["simulate", *arguments])


@pytest.fixture
def catalogue(tmp_path: Path) -> str:
    path = tmp_path / "catalogue.csv"
    path.write_text(CATALOGUE)
    return str(path)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return str(path)


def test_two_policies_side_by_side_on_a_trace(trace: str, catalogue: str) -> None:
    arguments = (
        trace,
        "--catalogue",
        catalogue,
        "--workers",
        "2",
        "-p",
        "round_robin",
        "-p",
        "least_outstanding",
    )
    result = reactant(*arguments)
    assert result.exit_code == 0, result.output
    assert "200 requests to 2 workers" in result.stdout
    for text in ("round_robin", "least_outstanding", "worker0", "worker1", "p99 ms", "rows/run"):
        assert text in result.stdout
    shown = json.loads(reactant(*arguments, "--json").stdout)
    assert [one["policy"] for one in shown] == ["round_robin", "least_outstanding"]
    first = shown[0]
    assert first["arrivals"] == 200
    assert first["latency"]["answered"] == 100
    assert set(first["models"]) == {"a", "b"}
    assert [worker["name"] for worker in first["workers"]] == ["worker0", "worker1"]


def test_a_trace_of_json_lines_says_the_same(tmp_path: Path, trace: str, catalogue: str) -> None:
    lines = [line.split(",") for line in TRACE.splitlines()[1:]]
    file = tmp_path / "trace.jsonl"
    # In another order, and without the items, which are 1.
    file.write_text("".join(json.dumps({"time": float(t), "model": m}) + "\n" for t, m, _ in lines[::-1]))
    found = []
    for path in (trace, str(file)):
        result = reactant(path, "--catalogue", catalogue, "-p", "round_robin", "--json")
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.stdout)[0] | {"took_seconds": 0})
    assert found[0] == found[1]


def test_generated_traffic_follows_from_its_seed() -> None:
    arguments = ("--seconds", "2", "--items", "1-3", "-p", "round_robin", "--json", "--seed")
    one, same, other = (
        json.loads(reactant(*arguments, seed).stdout)[0] | {"took_seconds": 0} for seed in ("1", "1", "2")
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,model\n0,a\nsoon,a\n", "trace.csv line 3: time is 'soon'; accepted is a number of 0 or more"),
        ("time,model\n0,a\n-1,a\n", "line 3: time is '-1'; accepted is a number of 0 or more"),
        ("time,model\n0,a\n\nnan,a\n", "line 4: time is 'nan'"),
        ("time,model,items\n0,a,0\n1,a,1\n", "line 2: items is '0'; accepted is a whole number of 1 or more"),
        ("time,model,items\n0,a,1.5\n1,a,1\n", "line 2: items is '1.5'"),
        ("time,model\n0,\n", "line 2: model is missing; accepted are time (seconds), model, and items"),
        ("time,model\n0,a,7\n", "line 2: 3 values under 2 columns (time,model)"),
        ("0,a\n1,a\n", "line 1: the header is '0,a'; accepted are the columns time (seconds), model"),
        ('{"time": 0, "model": "a"}\n{"time": 1,\n', "line 2: '{\"time\": 1,' is no JSON object"),
        ('{"time": true, "model": "a"}\n', "line 1: time is True"),
        ("time,model\n0,a\n", "has 1 arrivals; a trace has two or more"),
        ("time,model\n0,a\n1,c\n", "the catalogue has no model 'c'; it has a, b"),
        (
            "time,model,items\n0,a,1\n1,a,9\n",
            "asked for 1 to 9 items; accepted are 1 to 8, its largest batch",
        ),
    ],
)
def test_a_bad_line_is_named_with_what_is_accepted(
    tmp_path: Path, catalogue: str, text: str, message: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    result = reactant(str(path), "--catalogue", catalogue, "--warm-up", "0")
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,fixed_ms,per_item_ms\na,x,0\n", "line 2: fixed_ms is 'x'"),
        ("model,fixed_ms\na,1\n", "line 2: per_item_ms is missing; accepted are model, fixed_ms"),
        ("model,fixed_ms,per_item_ms\na,0,0\n", "line 2: model 'a': an execution takes 0.0 s"),
        ("model,fixed_ms,per_item_ms\na,1,0\na,1,0\n", "model 'a' is there twice"),
    ],
)
def test_a_bad_catalogue_is_named_likewise(tmp_path: Path, trace: str, text: str, message: str) -> None:
    path = tmp_path / "catalogue.csv"
    path.write_text(text)
    result = reactant(trace, "--catalogue", str(path))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-p", "robin"), "policy 'robin': mode is 'robin'; accepted is round_robin, least_outstanding"),
        (("--items", "few"), "--items is 'few'; accepted is a number, as 4, or two, as 1-8"),
        (("--items", "3-2"), "items are 3 to 2; accepted are 1 or more, ascending"),
        (("--items", "64"), "accepted are 1 to 32, its largest batch"),
        (("--seconds", "2", "--warm-up", "2"), "the warm-up takes 2 s of a trace of"),
        (("--plot", "a.pdf"), "--plot is a.pdf; accepted are names with .svg or .png"),
        (("--plot", "/no/such/a.svg"), "there is no folder /no/such"),
        (("missing.csv",), "a trace needs --catalogue"),
        (("missing.csv", "--catalogue", "missing.csv"), "missing.csv cannot be read: No such file"),
    ],
)
def test_wrong_use_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = reactant(*arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert message in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "begin"), [("a.svg", b"<?xml"), ("a.png", b"\x89PNG")])
def test_a_plot_is_drawn_and_the_same_again(tmp_path: Path, name: str, begin: bytes) -> None:
    drawn = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / name
        result = reactant(
            "--seconds", "1", "-p", "round_robin", "-p", "least_outstanding", "--plot", str(path)
        )
        assert result.exit_code == 0, result.output
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1]
    assert drawn[0].startswith(begin)
    if name.endswith("svg"):
        assert b"least_outstanding" in drawn[0]


def test_without_matplotlib_only_the_plot_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactant_cli.simulate_plot.find_spec", lambda _: None)
    result = reactant("--plot", str(tmp_path / "a.svg"))
    assert result.exit_code == 1
    assert "pip install 'reactant-cli[plot]'" in result.stderr
    assert reactant("--seconds", "1", "-p", "round_robin").exit_code == 0
