"""Pages of many made into one: M1 of the bug reports, and OpenMetrics' stricter rules."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter as Tally

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector
from prometheus_client.exposition import generate_latest as text_page
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict

from reactant_gateway.exposition import read_page
from reactant_gateway.families import Page
from reactant_gateway.merge import merge_pages
from reactant_gateway.render import render


def openmetrics_page(registry: CollectorRegistry) -> bytes:
    page: bytes = openmetrics_text(registry)  # type: ignore[no-untyped-call]
    return page


def worker(index: int, body: bytes, *, openmetrics: bool = False) -> Page:
    labels = {"worker": f"worker{index}", "gpu": str(index)}
    return read_page(f"worker{index}", labels, body, openmetrics=openmetrics)


def page_of(*pages: Page, openmetrics: bool = False) -> str:
    return "".join(render(merge_pages(pages).families, openmetrics=openmetrics))


def samples_of(page: str) -> list[str]:
    return [line for line in page.splitlines() if not line.startswith("#")]


def assert_contiguous(page: str) -> None:
    """One HELP and one TYPE a family, its samples below them, no series twice."""
    lines = page.splitlines()
    headers = Tally(
        " ".join(line.split(" ")[1:3]) for line in lines if line.startswith("# ") and line != "# EOF"
    )
    assert set(headers.values()) <= {1}
    series = Tally(line.rpartition(" ")[0] for line in lines if not line.startswith("#"))
    assert set(series.values()) <= {1}
    family = ""
    for line in lines:
        if line.startswith("# TYPE "):
            family = line.split(" ")[2]
        elif not line.startswith("#"):
            assert line.startswith(family), line


def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    requests = Counter("worker_requests", "Requests.", ["model", "code"], registry=registry)
    latency = Histogram("worker_request_latency_seconds", "Latency.", ["model"], registry=registry)
    for model in ("echo", 'a "b"\\\n', "é"):
        requests.labels(model, "OK").inc()
        latency.labels(model).observe(0.1, {"trace": "1"})
    Info("worker", "What this worker is.", registry=registry).info({"name": "w", "gpu": "cuda:0"})
    ProcessCollector(registry=registry)
    return registry


def four_workers(*, openmetrics: bool) -> list[Page]:
    body = openmetrics_page(registry()) if openmetrics else text_page(registry())
    return [worker(index, body, openmetrics=openmetrics) for index in range(4)]


@pytest.mark.parametrize("openmetrics", [True, False])
def test_m1_one_header_a_family_and_no_series_twice(openmetrics: bool) -> None:
    page = page_of(*four_workers(openmetrics=openmetrics))

    assert_contiguous(page)
    samples = samples_of(page)
    assert len(samples) == 4 * len(samples_of(text_page(registry()).decode()))
    assert all('gpu="' in line and 'worker="worker' in line for line in samples)
    assert 'process_open_fds{gpu="3",worker="worker3"}' in page
    assert 'worker_info{exported_gpu="cuda:0",gpu="2",name="w",worker="worker2"} 1.0' in page


@pytest.mark.parametrize("openmetrics", [True, False])
def test_m3_openmetrics_of_many_pages_is_strictly_valid(openmetrics: bool) -> None:
    page = page_of(*four_workers(openmetrics=openmetrics), openmetrics=True)

    assert_contiguous(page)
    assert page.endswith("\n# EOF\n")
    assert page.count("# EOF") == 1
    families = {family.name: family for family in strict(page)}  # type: ignore[no-untyped-call]
    assert families["worker_requests"].type == "counter"
    assert families["worker_request_latency_seconds"].type == "histogram"
    models = {sample.labels["model"] for sample in families["worker_requests"].samples}
    assert models == {"echo", 'a "b"\\\n', "é"}


@pytest.mark.slow
def test_m1_promtool_accepts_the_merged_page() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    page = page_of(*four_workers(openmetrics=True))

    checked = subprocess.run([promtool, "check", "metrics"], input=page.encode(), capture_output=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_family_of_another_type_is_left_out_and_said() -> None:
    first = worker(0, b"# TYPE a counter\na 1\n# TYPE b gauge\nb 1\n")
    second = worker(1, b"# TYPE a gauge\na 1\n# TYPE b gauge\nb 2\n")
    third = worker(2, b"a 1\n")

    merged = merge_pages([first, second, third])

    assert merged.problems == (
        "worker1: a is a gauge, elsewhere a counter",
        "worker2: a is a unknown, elsewhere a counter",
    )
    assert samples_of(page_of(first, second, third)) == [
        'a{gpu="0",worker="worker0"} 1',
        'b{gpu="0",worker="worker0"} 1',
        'b{gpu="1",worker="worker1"} 2',
    ]


def test_a_sample_name_is_of_one_family() -> None:
    histogram = b'# TYPE a histogram\na_bucket{le="+Inf"} 1\na_sum 1\na_count 1\n'
    pages = [worker(0, histogram), worker(1, b"# TYPE a_count gauge\na_count 7\n")]

    for order in (pages, pages[::-1]):
        merged = merge_pages(order)
        assert len(merged.problems) == 1
        assert "shares a sample name with" in merged.problems[0]
        assert_contiguous(page_of(*order))


def test_a_series_of_two_pages_is_there_once() -> None:
    pages = [worker(0, b"a 1\n"), worker(0, b'a 2\na{x="1"} 3\n')]

    assert merge_pages(pages).problems == ("worker0: a has series of another page",)
    assert samples_of(page_of(*pages)) == [
        'a{gpu="0",worker="worker0"} 1',
        'a{gpu="0",worker="worker0",x="1"} 3',
    ]


def test_pages_stay_as_they_were() -> None:
    pages = [worker(0, b"a 1\n"), worker(1, b"a 2\n")]
    once = page_of(*pages)

    assert page_of(*pages) == once
    assert len(pages[0].families["a"].groups) == 1


UNSOUND = {
    "a counter below zero": b"# TYPE a_total counter\na_total -1\n",
    "a counter that is no number": b"# TYPE a_total counter\na_total NaN\n",
    "a counter without its suffix": b"# TYPE a counter\na 1\n",
    "a counter of no name": b"# TYPE _total counter\n_total 1\n",
    "a counter beside a gauge": b"# TYPE a_total counter\na_total 1\n# TYPE a gauge\na 1\n",
    "a gauge before a counter": b"# TYPE a gauge\na 1\n# TYPE a_total counter\na_total 1\n",
    "no last bucket": b'# TYPE a histogram\na_bucket{le="1"} 1\na_sum 1\na_count 1\n',
    "unsorted buckets": b'# TYPE a histogram\na_bucket{le="5"} 1\na_bucket{le="1"} 1\na_bucket{le="inf"} 1\n',
    "falling buckets": b'# TYPE a histogram\na_bucket{le="1"} 2\na_bucket{le="inf"} 1\n',
    "a bucket by half": b'# TYPE a histogram\na_bucket{le="+Inf"} 1.5\n',
    "a bucket without a bound": b"# TYPE a histogram\na_bucket 1\n",
    "a bucket with a word": b'# TYPE a histogram\na_bucket{le="many"} 1\n',
    "another count": b'# TYPE a histogram\na_bucket{le="+Inf"} 1\na_sum 1\na_count 2\n',
    "a sum alone": b'# TYPE a histogram\na_bucket{le="+Inf"} 1\na_sum 1\n',
    "a sum below zero": b'# TYPE a histogram\na_bucket{le="+Inf"} 1\na_sum -1\na_count 1\n',
    "no buckets": b"# TYPE a histogram\na_sum 1\na_count 1\n",
    "two times": b'# TYPE a histogram\na_bucket{le="+Inf"} 1 5\na_sum 1 6\na_count 1 5\n',
    "a time here and there": b'# TYPE a histogram\na_bucket{le="+Inf"} 1 5\na_sum 1\na_count 1 5\n',
    "a quantile of two": b'# TYPE a summary\na{quantile="2"} 1\n',
    "no quantile": b"# TYPE a summary\na 1\n",
    "a summary below zero": b'# TYPE a summary\na{quantile="0.5"} -1\n',
    "a summary's sum below zero": b"# TYPE a summary\na_sum -1\na_count 1\n",
    "a summary's half a count": b"# TYPE a summary\na_sum 1\na_count 1.5\n",
}


@pytest.mark.parametrize("body", UNSOUND.values(), ids=UNSOUND)
def test_what_openmetrics_refuses_goes_there_untyped(body: bytes) -> None:
    pages = [worker(index, body) for index in range(2)]

    text, page = page_of(*pages), page_of(*pages, openmetrics=True)

    families = list(strict(page))  # type: ignore[no-untyped-call]
    assert "unknown" in {family.type for family in families}
    assert_contiguous(page)
    assert sorted(line.split(" ")[:2] for line in samples_of(text)) == sorted(
        line.split(" ")[:2] for line in samples_of(page)
    )
    for header in body.decode().splitlines():
        assert not header.startswith("# TYPE") or header in text


SOUND = {
    "a summary of nothing yet": b'# TYPE a summary\na{quantile="0.5"} NaN\na_sum 0\na_count 0\n',
    "a histogram of temperatures": b'# TYPE a histogram\na_bucket{le="-1"} 1\na_bucket{le="+Inf"} 2\n',
    "timestamps": b'# TYPE a histogram\na_bucket{le="inf"} 1 5\na_sum 1 5\na_count 1 5\n',
    "a group in pieces": b'# TYPE a summary\na_sum{x="1"} 1\na_sum 1\na_count{x="1"} 1\na_count 1\n',
}


@pytest.mark.parametrize("body", SOUND.values(), ids=SOUND)
def test_what_openmetrics_takes_keeps_its_type(body: bytes) -> None:
    (family,) = strict(page_of(worker(0, body), worker(1, body), openmetrics=True))  # type: ignore[no-untyped-call]

    assert family.type in ("summary", "histogram")


def test_an_exemplar_in_the_wrong_place_or_too_long_is_no_reason_to_lose_a_sample() -> None:
    label = "x" * 120
    body = (
        f'# TYPE a gauge\na 1 # {{t="1"}} 1\n# TYPE b counter\nb_total 2 # {{long_name="{label}"}} 1\n# EOF\n'
    )

    page = page_of(worker(0, body.encode(), openmetrics=True), openmetrics=True)

    values = {family.name: family.samples[0].value for family in strict(page)}  # type: ignore[no-untyped-call]
    assert values == {"a": 1, "b": 2}


def test_a_big_page_comes_in_pieces() -> None:
    lines = "".join(f'a{{model="{index}"}} 1\n' for index in range(5000))
    pages = [worker(0, lines.encode())]

    pieces = list(render(merge_pages(pages).families, openmetrics=True))

    assert max(piece.count("\n") for piece in pieces) <= 600
    # And the check before them.
    assert pieces[:50] == 50 * [""]
    assert len(samples_of("".join(pieces))) == 5000
