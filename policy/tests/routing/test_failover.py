from __future__ import annotations

import pytest

from reactant_policy.routing.failover import Fault, may_retry


@pytest.mark.parametrize("fault", Fault)
def test_what_a_worker_did_not_start_is_tried_elsewhere(fault: Fault) -> None:
    retried = may_retry(fault, idempotent=False, response_begun=False, resendable=True, untried=1)
    assert retried is (fault is not Fault.LOST)
    assert fault.started is (fault is Fault.LOST)


@pytest.mark.parametrize("fault", Fault)
def test_an_idempotent_model_survives_every_fault(fault: Fault) -> None:
    assert may_retry(fault, idempotent=True, response_begun=False, resendable=True, untried=1)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("idempotent", [False, True])
def test_never_after_a_response_began_nor_without_the_request_nor_without_a_worker(
    fault: Fault, idempotent: bool
) -> None:
    assert not may_retry(fault, idempotent=idempotent, response_begun=True, resendable=True, untried=1)
    assert not may_retry(fault, idempotent=idempotent, response_begun=False, resendable=False, untried=1)
    assert not may_retry(fault, idempotent=idempotent, response_begun=False, resendable=True, untried=0)


def test_a_request_that_two_workers_died_with_goes_to_no_third() -> None:
    def again(*, lost_before: bool, fault: Fault) -> bool:
        return may_retry(
            fault, idempotent=True, response_begun=False, resendable=True, untried=1, lost_before=lost_before
        )

    assert again(lost_before=False, fault=Fault.LOST)
    assert not again(lost_before=True, fault=Fault.LOST)
    assert again(lost_before=True, fault=Fault.NOT_STARTED)
