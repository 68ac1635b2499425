"""Gets the metrics pages of workers, all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, final

from reactant_core.http_get import http_get
from reactant_gateway.aside import aside
from reactant_gateway.exposition import PageError, PageReader, page_slices
from reactant_gateway.families import Page

SCRAPE_SECONDS: Final = 1.0
PAGE_LIMIT_BYTES: Final = 16 * 1024 * 1024

_ACCEPT: Final = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


@final
@dataclass(frozen=True, slots=True)
class Target:
    """A page to get.

    Attributes:
        worker: its name, unique among the targets.
        address: `host:port` or `unix:/path`.
        labels: added to every sample, `worker` among them; one without a value is left out.
        path: of the page.
    """

    worker: str
    address: str
    labels: Mapping[str, str]
    path: str = "/metrics"


@final
@dataclass(frozen=True, slots=True)
class Scraped:
    """What came of a target: a page, or the reason why not."""

    target: Target
    page: Page | None
    reason: str = ""


@final
@dataclass(frozen=True, slots=True)
class Fetched:
    """What a target sent, not yet read: bytes, or the reason why there are none."""

    target: Target
    body: bytes | None
    openmetrics: bool = False
    reason: str = ""


async def fetch(
    targets: Sequence[Target], *, seconds: float = SCRAPE_SECONDS, limit_bytes: int = PAGE_LIMIT_BYTES
) -> list[Fetched]:
    """What every target sent, in order. One that is slow, dead or endless costs only itself."""
    return await asyncio.gather(*(_fetch(target, seconds, limit_bytes) for target in targets))


async def read(fetched: Sequence[Fetched]) -> list[Scraped]:
    """The pages, in order, read beside the event loop. One that is garbage costs only itself."""
    return [
        Scraped(one.target, None, one.reason)
        if one.body is None
        else await aside(partial(_read, one.target, one.body, openmetrics=one.openmetrics))
        for one in fetched
    ]


async def _fetch(target: Target, seconds: float, limit_bytes: int) -> Fetched:
    try:
        async with asyncio.timeout(seconds):
            answer = await http_get(
                target.address, target.path, limit_bytes=limit_bytes, headers={"Accept": _ACCEPT}
            )
    except TimeoutError:
        return Fetched(target, None, reason=f"no page within {seconds:g} s")
    except (OSError, ValueError) as error:
        return Fetched(target, None, reason=str(error))
    if answer.status != 200:
        return Fetched(target, None, reason=f"HTTP status {answer.status}")
    content = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Fetched(target, answer.body, openmetrics=content == "application/openmetrics-text")


def _read(target: Target, body: bytes, *, openmetrics: bool) -> Generator[None, None, Scraped]:
    reader = PageReader(target.worker, target.labels, openmetrics=openmetrics)
    try:
        for lines in page_slices(body):
            reader.feed(lines)
            yield
        return Scraped(target, reader.finish())
    except PageError as error:
        return Scraped(target, None, f"not a metrics page: {error}")
