from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from reactant_cli.main import app, main
from reactant_core.testing import free_port

RUNNER = CliRunner()


def reactant(*arguments: str, stdin: str | None = None) -> Result:
    return RUNNER.invoke(app, ["infer", *arguments], input=stdin)


def outputs(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["outputs"]


def failure(result: Result, exit_code: int) -> str:
    """The one line on standard error; nothing else may have been printed."""
    assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("value", ["[[1, 2, 3, 4]]", "[1, 2, 3, 4]"])
def test_values_come_back_and_a_missing_batch_axis_is_added(server: Any, value: str) -> None:
    answer = outputs(reactant("echo", "--input", f"X={value}", "--url", server.url, "--json"))
    assert answer == {"X": {"datatype": "FP32", "shape": [1, 4], "data": [[1.0, 2.0, 3.0, 4.0]]}}
    (request,) = server.requests
    assert request.raw_input_contents == [np.array([1, 2, 3, 4], "<f4").tobytes()]


def test_a_flat_list_fills_the_variable_axis(server: Any) -> None:
    answer = outputs(reactant("echo", "-i", f"X={list(range(12))}", "-u", server.url, "--json"))
    assert answer["X"]["shape"] == [3, 4]


def test_a_table_shows_name_type_shape_and_values(server: Any) -> None:
    result = reactant("echo", "-i", "X=[1, 2, 3, 4.5]", "-u", server.url)
    assert result.exit_code == 0
    for shown in ("echo", "X", "FP32", "[1, 4]", "4.5"):
        assert shown in result.stdout


def test_texts_make_a_batch_of_any_unicode(server: Any) -> None:
    texts = ["héllo", "", "日本 🎉", 'quo"te']
    options = [part for text in texts for part in ("--text", text)]
    assert outputs(reactant("echo_bytes", *options, "-u", server.url, "--json"))["text"]["data"] == texts


def test_bytes_that_are_no_text_travel_as_base64(server: Any) -> None:
    value = '{"text": [{"b64": "//4A"}, "a\\u0000"]}'
    answer = outputs(reactant("echo_bytes", "-f", "-", "-u", server.url, "--json", stdin=value))
    assert answer["text"]["data"] == [{"b64": "//4A"}, "a\0"]
    assert server.requests[0].raw_input_contents == [b"\x03\0\0\0\xff\xfe\0\x02\0\0\0a\0"]


@pytest.mark.parametrize("value", ["hello world", "42", '"42"', "true"])
def test_a_bare_word_is_a_text(server: Any, value: str) -> None:
    answer = outputs(reactant("echo_bytes", "-i", f"text={value}", "-u", server.url, "--json"))
    assert answer["text"]["data"] == [value.strip('"')]


def test_sixteen_bit_floats_are_exact(server: Any) -> None:
    answer = outputs(reactant("echo_bf16", "-i", "X=[1, -0.5]", "-u", server.url, "--json"))
    assert answer["X"]["data"] == [[1.0, -0.5]]
    assert server.requests[0].raw_input_contents == [b"\x80\x3f\x00\xbf"]


def test_not_finite_values_stay_valid_json(server: Any) -> None:
    result = reactant("echo", "-i", 'X=[NaN, Infinity, "-Infinity", 0]', "-u", server.url, "--json")
    assert outputs(result)["X"]["data"] == [["NaN", "Infinity", "-Infinity", 0.0]]


def test_an_array_file_is_converted_when_nothing_is_lost(server: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(8, dtype=">f8").reshape(4, 2).T)
    answer = outputs(reactant("echo", "-i", f"X=@{tmp_path / 'x.npy'}", "-u", server.url, "--json"))
    assert answer["X"]["data"] == [[0.0, 2.0, 4.0, 6.0], [1.0, 3.0, 5.0, 7.0]]


def test_a_v2_request_file_with_flat_data(server: Any, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    tensors = [
        {"name": "mask", "shape": [2, 2], "datatype": "BOOL", "data": [True, False, False, True]},
        {"name": "ids", "shape": [2, 2], "datatype": "INT32", "data": [1, 2, 3, 4]},
    ]
    file.write_text(json.dumps({"inputs": tensors}), "utf-8")
    answer = outputs(reactant("pair", "--file", str(file), "-u", server.url, "--json"))
    assert answer["ids"]["data"] == [[1, 2], [3, 4]]
    assert answer["mask"]["data"] == [[True, False], [False, True]]


def test_typed_outputs_are_read_too(server: Any) -> None:
    server.typed = True
    assert outputs(reactant("echo", "-i", "X=[0,0,0,0]", "-u", server.url, "--json"))["X"]["data"] == [
        [1.0, 2.0, 3.0, 4.0]
    ]


@pytest.mark.parametrize(
    ("model", "assignment", "expected"),
    [
        ("echo", "X=[1, 2, 3]", r"input 'X': shape [3] does not fit FP32[-1, 4]"),
        ("echo", "X=[[1, 2], [3]]", "ragged: [1] has shape [1], those before it [2]"),
        ("echo", 'X=["a", 1, 2, 3]', "element 0 is 'a', FP32 takes numbers"),
        ("echo", "X=[1e39, 0, 0, 0]", "element 0 is 1e+39, too large for FP32"),
        ("echo", "X=[1, 2", "is not JSON"),
        ("echo", "X=@missing.npy", "missing.npy: No such file or directory"),
        ("echo", "x=[1, 2, 3, 4]", "no input 'x', did you mean 'X'?; input 'X' (FP32[-1, 4]) is missing"),
        ("echo_bytes", "text=[1]", "element 0 is 1, BYTES takes strings"),
        ("echo_bytes", 'text=["a"', "is not JSON"),
        ("pair", "ids=[1.5, 2]", "element 0 is 1.5, INT32 takes integers from -2147483648 to 2147483647"),
        ("pair", "ids=[2147483648, 2]", "element 0 is 2147483648"),
        ("pair", "mask=[0, 1]", "input 'mask': element 0 is 0, BOOL takes true or false"),
        ("pair", "mask=[true, true]", "input 'ids' (INT32[-1, 2]) is missing"),
    ],
)
def test_an_input_that_does_not_fit_is_named_and_not_sent(
    server: Any, model: str, assignment: str, expected: str
) -> None:
    assert expected in failure(reactant(model, "-i", assignment, "-u", server.url), 2)
    assert server.requests == []


@pytest.mark.parametrize("tensor", ["X", "ids", "mask", "text"])
def test_a_huge_element_is_cut_in_the_message(server: Any, tmp_path: Path, tensor: str) -> None:
    (tmp_path / "big.json").write_text(json.dumps([{"a": "x" * 300_000}]))
    model = {"X": "echo", "text": "echo_bytes"}.get(tensor, "pair")
    line = failure(reactant(model, "-i", f"{tensor}=@{tmp_path / 'big.json'}", "-u", server.url), 2)
    assert "element 0 is {'a': 'xxx" in line
    assert len(line) < 500


@pytest.mark.parametrize(
    ("entry", "assignment"),
    [
        ({"name": "X", "datatype": "F" * 9999, "data": [1]}, None),
        ({"name": "X", "shape": [-1] * 9999, "data": [1]}, None),
        ({"name": "y" * 9999, "data": [1]}, None),
        (None, "z" * 9999),
        (None, "X=@" + "z" * 9999),
        (None, "X=@" + "z" * 9999 + ".npy"),
    ],
)
def test_no_value_makes_a_message_long(server: Any, tmp_path: Path, entry: Any, assignment: Any) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"inputs": [entry]}))
    options = ["-i", assignment] if assignment else ["-f", str(tmp_path / "r.json")]
    line = failure(reactant("echo", *options, "-u", server.url), 2)
    assert "…" in line
    assert len(line) < 600


def test_flat_data_of_the_wrong_length_is_counted(server: Any, tmp_path: Path) -> None:
    entry = {"name": "X", "shape": [1, 8, 9], "datatype": "FP32", "data": [1, 2]}
    (tmp_path / "r.json").write_text(json.dumps({"inputs": [entry]}))
    line = failure(reactant("echo", "-f", str(tmp_path / "r.json"), "-u", server.url), 2)
    assert "input 'X': FP32[1, 8, 9]: 72 values expected, got 2" in line


def test_every_fault_is_said_at_once(server: Any) -> None:
    line = failure(reactant("pair", "-i", "ids=[1.5, 1]", "-i", "mask=[1, 1]", "-u", server.url), 2)
    assert "input 'ids'" in line
    assert "input 'mask'" in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "no input given"),
        (["-i", "X"], "write it as name=value"),
        (["-i", "X=[1]", "-i", "X=[2]"], "input 'X' is given twice"),
        (["--file", "nowhere.json"], "nowhere.json: No such file or directory"),
        (["--text", "a"], "--text needs an input of type BYTES that is not given yet; the model takes 'X'"),
    ],
)
def test_wrong_use(server: Any, arguments: list[str], expected: str) -> None:
    assert expected in failure(reactant("echo", *arguments, "-u", server.url), 2)


@pytest.mark.parametrize("content", ["[1]", "{", '{"inputs": [{"name": "X"}]}', "5"])
def test_a_request_file_of_another_form(server: Any, tmp_path: Path, content: str) -> None:
    (tmp_path / "r.json").write_text(content)
    assert "r.json" in failure(reactant("echo", "-f", str(tmp_path / "r.json"), "-u", server.url), 2)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([b"a\0"], dtype="S"), "BYTES takes an array of str"),
        (np.array([1.5]), "BYTES takes an array of str"),
        (np.array([{}], dtype=object), "not a .npy file that can be read"),
    ],
)
def test_an_array_file_of_another_type(server: Any, tmp_path: Path, array: Any, expected: str) -> None:
    np.save(tmp_path / "x.npy", array)
    line = failure(reactant("echo_bytes", "-i", f"text=@{tmp_path / 'x.npy'}", "-u", server.url), 2)
    assert expected in line


def test_an_unknown_model_suggests_the_near_one(server: Any) -> None:
    line = failure(reactant("ecko", "-i", "X=[1]", "-u", server.url), 1)
    assert "no model 'ecko'" in line
    assert "did you mean 'echo'" in line


def test_a_known_model_that_is_not_served_says_why(server: Any) -> None:
    line = failure(reactant("bad", "-i", "X=[1]", "-u", server.url), 1)
    assert f"model 'bad' is known at {server.url} but not served: UNAVAILABLE, no weights" in line
    server.index["later"] = ("UNAVAILABLE", "")
    line = failure(reactant("later", "-i", "X=[1]", "-u", server.url), 1)
    assert line.endswith("not served: UNAVAILABLE, no reason given")


def test_a_model_that_became_ready_meanwhile(server: Any) -> None:
    server.index["later"] = ("READY", "")
    assert "ask again" in failure(reactant("later", "-i", "X=[1]", "-u", server.url), 1)


@pytest.mark.parametrize(
    ("arguments", "position"),
    [
        (["infer", "\udcff", "--text", "a"], 2),
        (["infer", "m", "--text", "\udcff"], 4),
        (["status", "--url", "\udcff:1"], 3),
        (["\udcff"], 1),
    ],
)
def test_an_argument_that_is_not_utf8_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], position: int
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert line.startswith(f"reactant: argument {position} is not UTF-8 text: '")


def test_an_unknown_model_without_a_near_one_lists_what_there_is(server: Any) -> None:
    line = failure(reactant("zzz", "-i", "X=[1]", "-u", server.url), 1)
    assert "it has bad, echo, echo_bf16, echo_bytes, pair" in line


def test_a_server_error_is_one_harmless_line(server: Any) -> None:
    server.fail_with = (grpc.StatusCode.INTERNAL, "hook\nfailed \x1b[31m")
    line = failure(reactant("echo", "-i", "X=[1,2,3,4]", "-u", server.url), 1)
    assert line == "reactant: INTERNAL: hook failed \N{REPLACEMENT CHARACTER}[31m"


def test_no_server() -> None:
    url = f"127.0.0.1:{free_port()}"
    line = failure(reactant("echo", "-i", "X=[1]", "--url", url), 1)
    assert f"no server answers at {url} (connection refused)" in line
    assert "make run" in line


@pytest.mark.parametrize("url", ["localhost", "http://localhost:8001"])
def test_an_address_of_another_form(url: str) -> None:
    assert "write it as host:port" in failure(reactant("echo", "-i", "X=[1]", "--url", url), 2)
