"""Metadata, configuration and statistics messages."""

from __future__ import annotations

from reactant_core.bundle.dtypes import DType
from reactant_core.bundle.manifest import TensorSpec
from reactant_core.kserve.surface import SERVER_NAME
from reactant_proto import inference_pb2 as pb
from reactant_proto import model_config_pb2 as config_pb
from reactant_worker.engine.port import EngineStatistics
from reactant_worker.models.catalog import VERSION, Entry
from reactant_worker.models.counters import Duration
from reactant_worker.models.served import ServedModel

PLATFORM = "stablehlo"


def metadata(model: ServedModel) -> pb.ModelMetadataResponse:
    """Tensors as on the wire; -1 marks the batch axis and variable axes."""
    response = pb.ModelMetadataResponse(name=model.name, versions=[VERSION], platform=PLATFORM)
    for target, specs in ((response.inputs, model.client_inputs), (response.outputs, model.client_outputs)):
        for spec in specs.values():
            target.add(name=spec.name, datatype=spec.dtype.kserve, shape=spec.dims)
    return response


def model_config(model: ServedModel, device_kind: str) -> config_pb.ModelConfig:
    """The model as Triton's configuration describes one.

    `max_batch_size` is the largest compiled size when every client tensor has its batch axis first, which
    is what that field means to Triton's clients; 0 otherwise, and shapes are whole then.
    """
    tensors = (*model.client_inputs.values(), *model.client_outputs.values())
    batched = all(spec.batch_axis == 0 for spec in tensors)
    config = config_pb.ModelConfig(
        name=model.name,
        platform=PLATFORM,
        backend=SERVER_NAME,
        max_batch_size=model.largest if batched else 0,
    )
    for spec in model.client_inputs.values():
        config.input.add(name=spec.name, data_type=_data_type(spec.dtype), dims=_dims(spec, batched))
    for spec in model.client_outputs.values():
        config.output.add(name=spec.name, data_type=_data_type(spec.dtype), dims=_dims(spec, batched))
    if model.bundle.manifest.batched:
        config.dynamic_batching.preferred_batch_size.extend(model.sizes)
    kind = (
        config_pb.ModelInstanceGroup.KIND_CPU
        if device_kind == "cpu"
        else config_pb.ModelInstanceGroup.KIND_GPU
    )
    config.instance_group.add(name=f"{model.name}_0", kind=kind, count=1)
    return config


def statistics(entry: Entry, totals: EngineStatistics) -> pb.ModelStatistics:
    """Counters of a model since its name was first loaded."""
    counters = entry.counters
    message = pb.ModelStatistics(
        name=entry.name,
        version=VERSION,
        last_inference=int(counters.last_seconds * 1000),
        inference_count=counters.rows,
        execution_count=totals.dispatches,
    )
    stats = message.inference_stats
    for target, duration in (
        (stats.success, counters.success),
        (stats.fail, counters.fail),
        (stats.queue, counters.queue),
        (stats.compute_input, counters.compute_input),
        (stats.compute_infer, counters.compute_infer),
        (stats.compute_output, counters.compute_output),
    ):
        _fill(target, duration)
    return message


def _fill(target: pb.StatisticDuration, duration: Duration) -> None:
    target.count = duration.count
    target.ns = int(duration.seconds * 1e9)


def _data_type(dtype: DType) -> config_pb.DataType.ValueType:
    name = "STRING" if dtype.kserve == "BYTES" else dtype.kserve
    return config_pb.DataType.Value(f"TYPE_{name}")


def _dims(spec: TensorSpec, batched: bool) -> tuple[int, ...]:
    return spec.dims[1:] if batched else spec.dims
