"""`reactant infer`: one request from the command line."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from reactant_cli.codec import Array, decode, decode_contents, encode
from reactant_cli.connection import ModelInterface, connect
from reactant_cli.failure import CommandFailure, one_line_failures
from reactant_cli.inputs import read_inputs
from reactant_cli.options import AsJson, Timeout, Url, show, show_json
from reactant_cli.shown import shown
from reactant_core.bundle.dtypes import BY_KSERVE
from reactant_proto import inference_pb2


@one_line_failures
def infer(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="NAME=VALUE",
            help="An input: a JSON list, @file.npy or @file.json. Repeat it for each input.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help='JSON file with {"input": values} or a KServe V2 request; - is standard input.',
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", "-t", help="A text for the model's BYTES input. Repeat it for a batch."),
    ] = None,
    url: Url = "localhost:8001",
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Sends one request to MODEL and prints its outputs."""
    given = read_inputs(inputs or [], file, text or [])
    with connect(url, timeout) as server:
        interface = server.interface(model)
        arrays = given.arrays(model, interface.inputs)
        response = server.infer(build_request(model, interface, arrays))
    outputs = read_outputs(response)
    if as_json:
        values = {name: _json_output(array, datatype) for name, (array, datatype) in outputs.items()}
        show_json({"model": response.model_name, "outputs": values})
        return
    table = Table("output", "type", "shape", "values", title=response.model_name or model)
    for name, (array, datatype) in outputs.items():
        table.add_row(name, datatype, str(list(array.shape)), _shown(array))
    show(table)


def build_request(
    model: str, interface: ModelInterface, arrays: Mapping[str, Array]
) -> inference_pb2.ModelInferRequest:
    """A request with raw contents; `arrays` has one array per input of `interface`."""
    request = inference_pb2.ModelInferRequest(model_name=model)
    for decl in interface.inputs:
        array = arrays[decl.name]
        request.inputs.add(name=decl.name, datatype=decl.dtype.kserve, shape=array.shape)
        request.raw_input_contents.append(encode(array, decl.dtype))
    return request


def read_outputs(response: inference_pb2.ModelInferResponse) -> dict[str, tuple[Array, str]]:
    """Array and datatype of each output, raw or typed.

    Raises:
        CommandFailure: the response contradicts itself.
    """
    raw = response.raw_output_contents
    if raw and len(raw) != len(response.outputs):
        raise CommandFailure(f"the server sent {len(raw)} raw outputs for {len(response.outputs)} tensors")
    outputs: dict[str, tuple[Array, str]] = {}
    for index, tensor in enumerate(response.outputs):
        dtype = BY_KSERVE.get(tensor.datatype)
        try:
            if dtype is None:
                raise ValueError(f"datatype {shown(tensor.datatype)} is unknown")
            array = (
                decode(raw[index], dtype, tensor.shape)
                if raw
                else decode_contents(tensor.contents, dtype, tensor.shape)
            )
        except ValueError as error:
            raise CommandFailure(f"the server sent a faulty output {shown(tensor.name)}: {error}") from None
        outputs[tensor.name] = (array, tensor.datatype)
    return outputs


def _json_output(array: Array, datatype: str) -> dict[str, Any]:
    values = (array.astype(np.float32) if array.dtype.kind == "V" else array).tolist()
    return {"datatype": datatype, "shape": list(array.shape), "data": _json_values(values)}


def _json_values(value: Any) -> Any:
    """Lists of what JSON has; as in protobuf's JSON, NaN and infinities are texts."""
    if isinstance(value, list):
        return [_json_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode("ascii")}
    return value


def _shown(array: Array) -> str:
    if array.dtype.kind == "O":
        texts = [json.dumps(_json_values(item), ensure_ascii=False) for item in array.ravel()[:6].tolist()]
        return "\n".join(text if len(text) <= 200 else text[:199] + "…" for text in texts) + (
            f"\n… {array.size - 6} more" if array.size > 6 else ""
        )
    values = array.astype(np.float32) if array.dtype.kind == "V" else array
    return np.array2string(values, threshold=64, edgeitems=3, precision=6, max_line_width=88)
