"""Every row of the ModelInfer table, each followed by the canary."""

from __future__ import annotations

import pytest
from tests.conformance.row import Row
from tests.conformance.table import TABLE
from tests.support.target import Target


def test_rows_have_names_of_their_own() -> None:
    assert len({row.id for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_row(target: Target, row: Row) -> None:
    request = row.request()

    row.verify(target.client.infer(request, timeout=5), request)

    target.assert_well()
