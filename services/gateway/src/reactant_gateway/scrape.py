"""Gets the metrics pages of workers, all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from reactant_core.http_get import http_get
from reactant_gateway.exposition import PageError, PageReader, page_lines
from reactant_gateway.families import Page

SCRAPE_SECONDS: Final = 1.0
PAGE_LIMIT_BYTES: Final = 16 * 1024 * 1024

_ACCEPT: Final = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
# Lines read before others run: about half a millisecond.
_SLICE_LINES: Final = 250


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


async def scrape(
    targets: Sequence[Target], *, seconds: float = SCRAPE_SECONDS, limit_bytes: int = PAGE_LIMIT_BYTES
) -> list[Scraped]:
    """Every target's page, in order. One that is slow, dead, endless or garbage costs only itself."""
    reading = asyncio.Lock()
    return await asyncio.gather(*(_scrape(target, seconds, limit_bytes, reading) for target in targets))


async def _scrape(target: Target, seconds: float, limit_bytes: int, reading: asyncio.Lock) -> Scraped:
    try:
        async with asyncio.timeout(seconds):
            answer = await http_get(
                target.address, target.path, limit_bytes=limit_bytes, headers={"Accept": _ACCEPT}
            )
    except TimeoutError:
        return Scraped(target, None, f"no page within {seconds:g} s")
    except (OSError, ValueError) as error:
        return Scraped(target, None, str(error))
    if answer.status != 200:
        return Scraped(target, None, f"HTTP status {answer.status}")
    content = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    reader = PageReader(target.worker, target.labels, openmetrics=content == "application/openmetrics-text")
    try:
        # One page at a time, so that requests wait for one slice and not for one of each page.
        async with reading:
            lines = page_lines(answer.body)
            for start in range(0, len(lines), _SLICE_LINES):
                reader.feed(lines[start : start + _SLICE_LINES])
                await asyncio.sleep(0)
            return Scraped(target, reader.finish())
    except PageError as error:
        return Scraped(target, None, f"not a metrics page: {error}")
