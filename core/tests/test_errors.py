"""The error table, both directions."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactant_core import errors
from reactant_core.errors import (
    MESSAGE_LIMIT_BYTES,
    NOT_STARTED_KEY,
    ServingError,
    clip,
    error_from_status,
    trailing_metadata,
)

TABLE = {
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ModelNotFound: grpc.StatusCode.NOT_FOUND,
    errors.ModelUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.RequestCancelled: grpc.StatusCode.CANCELLED,
    errors.InternalError: grpc.StatusCode.INTERNAL,
    errors.Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
    errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
}


def test_the_table_is_whole() -> None:
    assert set(ServingError.__subclasses__()) == set(TABLE)
    assert len(set(TABLE.values())) == len(TABLE)


@pytest.mark.parametrize("kind", TABLE)
@pytest.mark.parametrize("not_started", [False, True])
def test_an_error_survives_the_wire(kind: type[ServingError], not_started: bool) -> None:
    error = kind("модель 'm': нет", not_started=not_started, trailers=(("reactant-unknown-region", "r1"),))
    assert error.code is TABLE[kind]
    received = error_from_status(error.code, error.message, trailing_metadata(error))
    assert type(received) is kind
    assert received.message == str(received) == error.message
    assert received.not_started is not_started
    assert received.trailers == (("reactant-unknown-region", "r1"),)


def test_the_not_started_trailer_is_there_only_when_it_is_true() -> None:
    assert trailing_metadata(errors.ModelUnavailable("draining", not_started=True)) == (
        (NOT_STARTED_KEY, "1"),
    )
    assert trailing_metadata(errors.ModelUnavailable("draining")) == ()
    for value, meaning in (("1", True), (b"1", True), ("0", False), ("", False)):
        error = error_from_status(grpc.StatusCode.UNAVAILABLE, "x", [(NOT_STARTED_KEY, value)])
        assert error.not_started is meaning


def test_statuses_that_are_not_ours_and_binary_trailers() -> None:
    error = error_from_status(grpc.StatusCode.DATA_LOSS, "x", [("trace-bin", b"\x00"), ("a", "b")])
    assert type(error) is ServingError
    assert error.trailers == (("a", "b"),)


@given(st.text(), st.integers(min_value=3, max_value=64))
def test_clip_keeps_a_prefix_within_the_limit(text: str, limit: int) -> None:
    whole = text.encode("utf-8", "replace").decode()
    cut = clip(text, limit)
    assert len(cut.encode()) <= limit
    if len(whole.encode()) <= limit:
        assert cut == whole
    else:
        assert cut.endswith("…")
        assert whole.startswith(cut[:-1])
        # Nothing that would still have fitted was left out.
        assert len(cut.encode()) + len(whole[len(cut) - 1].encode()) > limit


def test_messages_are_cut_to_what_fits_in_a_header() -> None:
    error = errors.InternalError("ж" * 5000)
    assert len(error.message.encode()) <= MESSAGE_LIMIT_BYTES
    assert errors.InternalError("\ud800").message == "?"
