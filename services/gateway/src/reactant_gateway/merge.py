"""Makes one metrics page of many. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from reactant_gateway.families import Family, Page, sample_names


@final
@dataclass(frozen=True, slots=True)
class Merged:
    """All pages together.

    Attributes:
        families: by name; no sample name in two of them, no series twice.
        problems: what was left out, for a warning each.
    """

    families: Mapping[str, Family]
    problems: tuple[str, ...]


def merge_pages(pages: Iterable[Page]) -> Merged:
    """One family of each name, whatever number of pages have it.

    The first page to have a family decides its type: one of another type is left out, and so is one that
    shares a sample name with a family of another name, and a series that an earlier page has.
    """
    families: dict[str, Family] = {}
    owners: dict[str, str] = {}
    problems: list[str] = []
    for page in pages:
        problems.extend(f"{page.source}: {problem}" for problem in page.problems)
        for family in page.families.values():
            known = families.get(family.name)
            if known is None:
                names = {family.name, *sample_names(family)}
                if others := names & owners.keys():
                    other = owners[min(others)]
                    problems.append(f"{page.source}: {family.name} shares a sample name with {other}")
                    continue
                owners.update(dict.fromkeys(names, family.name))
                families[family.name] = Family(
                    family.name, family.type, family.help, family.unit, dict(family.groups)
                )
            elif known.type != family.type:
                problems.append(f"{page.source}: {family.name} is a {family.type}, elsewhere a {known.type}")
            else:
                if known.groups.keys() & family.groups.keys():
                    problems.append(f"{page.source}: {family.name} has series of another page")
                known.help = known.help or family.help
                for group, samples in family.groups.items():
                    known.groups.setdefault(group, samples)
    return Merged(families, tuple(problems))
