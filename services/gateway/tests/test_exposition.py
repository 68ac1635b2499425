"""Reading a page: what is taken, what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Summary
from prometheus_client.exposition import generate_latest as text_page
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict

from reactant_gateway.exposition import PageError, read_page
from reactant_gateway.families import Page
from reactant_gateway.render import render


def openmetrics_page(registry: CollectorRegistry) -> bytes:
    page: bytes = openmetrics_text(registry)  # type: ignore[no-untyped-call]
    return page


TEXT = b"""# HELP requests_total Requests, by "model" \\\\ so\\nfar.
# TYPE requests_total counter
requests_total{model="a"} 3 1700000000123
requests_total { model = "b\\"\\\\\\n\xc3\xa9\xe2\x80\xa8}," , } +1e3
# a comment

# TYPE depth gauge
depth NaN
depth{le="inf"} -INF
lonely{x=""} .5
"""


def read(body: bytes, *, openmetrics: bool = False, **labels: str) -> Page:
    return read_page("worker0", labels, body, openmetrics=openmetrics)


def written(page: Page, *, openmetrics: bool = False) -> str:
    return "".join(render(page.families, openmetrics=openmetrics))


def test_the_text_format() -> None:
    assert written(read(TEXT)) == (
        '# HELP requests_total Requests, by "model" \\\\ so\\nfar.\n# TYPE requests_total counter\n'
        'requests_total{model="a"} 3 1700000000123\nrequests_total{model="b\\"\\\\\\né\u2028},"} +1e3\n'
        '# HELP depth \n# TYPE depth gauge\ndepth NaN\ndepth{le="+Inf"} -Inf\n'
        '# HELP lonely \n# TYPE lonely untyped\nlonely{x=""} .5\n'
    )


def test_a_quote_in_the_text_formats_help_has_no_escape() -> None:
    body = b'# HELP a A \\"b\\" \\\\ c.\na 1\n'

    assert read(body).families["a"].help == 'A \\"b\\" \\ c.'
    assert read(body + b"# EOF\n", openmetrics=True).families["a"].help == 'A "b" \\ c.'


def test_the_text_format_becomes_openmetrics() -> None:
    page = written(read(TEXT), openmetrics=True)

    families = {family.name: family for family in strict(page)}  # type: ignore[no-untyped-call]
    assert {name: family.type for name, family in families.items()} == {
        "requests": "counter",
        "depth": "gauge",
        "lonely": "unknown",
    }
    assert families["requests"].documentation == 'Requests, by "model" \\ so\nfar.'
    assert str(families["requests"].samples[0].timestamp) == "1700000000.123000000"
    assert families["requests"].samples[1].labels == {"model": 'b"\\\né\u2028},'}


OPENMETRICS = b"""# TYPE requests counter
# UNIT requests_seconds seconds
# HELP requests Say \\"it\\".
requests_total{a="1"} 3 1700000000.123 # {trace="x}"} 0.5 1700000000.1
requests_created{a="1"} 1.7e9 1700000000.123
# TYPE wait_seconds histogram
# UNIT wait_seconds seconds
wait_seconds_bucket{le="0.1"} 1 # {} 0.05
wait_seconds_bucket{le="+Inf"} 2
wait_seconds_count 2
wait_seconds_sum 3.5
# TYPE depth gauge
# UNIT depth seconds
depth 3
# TYPE thing info
thing_info{b="2"} 1
# TYPE mode stateset
mode{mode="on"} 1
mode{mode="off"} 0
# TYPE sizes gaugehistogram
sizes_bucket{le="+Inf"} 2
sizes_gcount 2
sizes_gsum 3
# EOF
"""


def test_openmetrics() -> None:
    page = written(read(OPENMETRICS, openmetrics=True), openmetrics=True)

    assert '_total{a="1"} 3 1700000000.123 # {trace="x}"} 0.5 1700000000.1\n' in page
    assert 'requests_created{a="1"} 1.7e9 1700000000.123\n' in page
    assert 'wait_seconds_bucket{le="0.1"} 1 # {} 0.05\n' in page
    assert "# UNIT wait_seconds seconds\n" in page
    assert page.count("# EOF") == 1
    types = {family.name: family.type for family in strict(page)}  # type: ignore[no-untyped-call]
    assert types == {
        "requests": "counter",
        "wait_seconds": "histogram",
        "depth": "gauge",
        "thing": "info",
        "mode": "gauge",
        "sizes_bucket": "unknown",
        "sizes_gcount": "unknown",
        "sizes_gsum": "unknown",
    }


def test_openmetrics_becomes_the_text_format() -> None:
    page = written(read(OPENMETRICS, openmetrics=True))

    assert page.startswith(
        '# HELP requests_total Say "it".\n# TYPE requests_total counter\n'
        'requests_total{a="1"} 3 1700000000123\n'
        '# HELP requests_created Say "it".\n# TYPE requests_created gauge\n'
        'requests_created{a="1"} 1.7e9 1700000000123\n'
    )
    assert '# TYPE thing_info gauge\nthing_info{b="2"} 1\n' in page
    assert "# {" not in page
    assert "UNIT" not in page
    assert "EOF" not in page


def full_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("requests", "Requests.", ["model"], registry=registry).labels('a"\\\n').inc(
        2, exemplar={"trace": '"\\'}
    )
    Histogram("wait_seconds", "Wait.", ["model"], registry=registry).labels("é").observe(3, {"trace": "y"})
    Summary("size_bytes", "Size.", registry=registry).observe(2.5)
    Gauge("depth", 'De"p\\th.\nYes.', registry=registry).set(float("nan"))
    Info("thing", "What.", registry=registry).info({"version": "1"})
    return registry


def test_prometheus_clients_own_pages_come_out_as_they_went_in() -> None:
    registry = full_registry()
    text, openmetrics = text_page(registry), openmetrics_page(registry)

    from_text, from_openmetrics = read(text), read(openmetrics, openmetrics=True)

    assert written(from_text) == text.decode()
    assert written(from_openmetrics) == text.decode()
    assert sorted(written(from_openmetrics, openmetrics=True).splitlines()) == sorted(
        openmetrics.decode().splitlines()
    )
    types = {family.name: family.type for family in strict(written(from_text, openmetrics=True))}  # type: ignore[no-untyped-call]
    assert types["requests"] == "counter"
    assert types["wait_seconds"] == "histogram"
    assert "requests_created" not in types


def test_labels_are_added_and_a_samples_own_are_kept() -> None:
    body = (
        b'a{worker="mine",exported_worker="too"} 1\n'
        b'b{gpu=""} 2\n'
        b'c{z="1",worker="w\\"",le="5"} 3\n'
        b"process_resident_memory_bytes 4\n"
    )

    page = written(read(body, worker='w"0', gpu="GPU-1", rack=""))

    assert [line for line in page.splitlines() if line[0] != "#"] == [
        'a{exported_exported_worker="mine",exported_worker="too",gpu="GPU-1",worker="w\\"0"} 1',
        'b{gpu="GPU-1",worker="w\\"0"} 2',
        'c{exported_worker="w\\"",gpu="GPU-1",le="5",worker="w\\"0",z="1"} 3',
        'process_resident_memory_bytes{gpu="GPU-1",worker="w\\"0"} 4',
    ]


def test_the_same_series_twice_is_there_once() -> None:
    page = read(b'a{x="1",y="2"} 1\na{y="2",x="1"} 2\na{x="1",y="2",z=""} 3\na 4\n')

    assert written(page).splitlines()[2:] == ['a{x="1",y="2"} 1', "a 4"]
    assert page.problems == ("a has samples with the same labels",)


def test_families_are_contiguous_whatever_the_page_does() -> None:
    page = read(b"# TYPE a counter\na 1\n# TYPE b gauge\nb 1\n" + b'a{x="1"} 2\n')

    assert written(page).splitlines()[2:4] == ["a 1", 'a{x="1"} 2']


@pytest.mark.parametrize(
    "body",
    [
        b"a 1",
        b"a\n",
        b"a one\n",
        b"a 1 2 3\n",
        b"a 0x1p3\n",
        b"a 1_0\n",
        b"1a 1\n",
        b"a{x=1} 1\n",
        b'a{x="1"\n',
        b'a{x="1" y="2"} 1\n',
        b'a{,x="1"} 1\n',
        b'a{x="1",,y="2"} 1\n',
        b'a{x="1",x="2"} 1\n',
        b'a{__name__="b"} 1\n',
        b'a{x="\\q"} 1\n',
        b'a{x="1"}1 2 3\n',
        b"a 1 1.5\n",
        b"a 1 99999999999999999\n",
        b"a 1 # {} 1\n",
        b"\xff 1\n",
        b"# TYPE a\n",
        b"# TYPE a rumour\n",
        b"# TYPE a info\n",
        b"# TYPE\n",
        b"# HELP 1a x\n",
        b"# TYPE a gauge\n# TYPE a gauge\n",
        b"# HELP a x\na 1\n# HELP a x\n",
        b"a 1\n# TYPE a gauge\n",
        b"# TYPE a histogram\na 1\n",
        b"a_count 1\n# TYPE a summary\n",
        b"<html><body>404</body></html>\n",
        b"\x00\x01\x02\n",
    ],
)
def test_a_page_that_is_none(body: bytes) -> None:
    with pytest.raises(PageError):
        read(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"a 1\n",
        b"a 1\n# EOF",
        b"a 1\n\n# EOF\n",
        b"# EOF\na 1\n",
        b"# EOF\n# EOF\n",
        b"# a comment\n# EOF\n",
        b"# TYPE a untyped\n# EOF\n",
        b"# TYPE a counter\na_total 1\n# TYPE a counter\n# EOF\n",
        b"# TYPE a counter\n# TYPE a_total gauge\n# EOF\n",
        b"a 1 1e300\n# EOF\n",
    ],
)
def test_an_openmetrics_page_that_is_none(body: bytes) -> None:
    with pytest.raises(PageError):
        read(body, openmetrics=True)


def test_a_cut_off_page_is_no_page_wherever_it_is_cut() -> None:
    registry = full_registry()
    for body, openmetrics in ((openmetrics_page(registry), True),):
        for end in range(len(body)):
            with pytest.raises(PageError):
                read(body[:end], openmetrics=openmetrics)


@given(st.binary(max_size=200))
def test_garbage_is_a_page_error_or_a_page(body: bytes) -> None:
    try:
        page = read(body, worker="w")
    except PageError:
        return
    list(strict(written(page, openmetrics=True)))  # type: ignore[no-untyped-call]


@given(st.text(max_size=30), st.text(max_size=30), st.floats())
def test_any_label_help_and_value_survive(label: str, text: str, value: float) -> None:
    registry = CollectorRegistry()
    Gauge("depth", text, ["x"], registry=registry).labels(label).set(value)

    body = openmetrics_page(registry)

    page = written(read(body, openmetrics=True, worker="w"), openmetrics=True)

    (family,) = strict(page)  # type: ignore[no-untyped-call]
    (sample,) = family.samples
    assert sample.labels == {"x": label, "worker": "w"}
    assert page.split("\n")[:2] == body.decode().split("\n")[:2]
    assert repr(float(sample.value)) == repr(value)
