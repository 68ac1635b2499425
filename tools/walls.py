"""Two kinds of import wall that import-linter does not bring; .importlinter uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, final

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grimp import ImportGraph


def _inside(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _render(check: ContractCheck) -> None:
    for importer, imported, line in check.metadata["imports"]:
        output.print_error(f"{importer} -> {imported} (l.{line})", bold=True)
    output.new_line()


def _check(graph: ImportGraph, illegal: Iterable[tuple[str, str]]) -> ContractCheck:
    imports = [
        (importer, imported, detail["line_number"])
        for importer, imported in sorted(illegal)
        for detail in graph.get_import_details(importer=importer, imported=imported)
    ]
    return ContractCheck(kept=not imports, metadata={"imports": imports})


@final
class ConfinedContract(Contract):
    """Some packages may be imported in the named rooms only, nowhere else, whatever is added later.

    Options:
        packages: the confined packages; one that nothing imports is no fault.
        rooms: the modules that may import them, with what is below each.
    """

    packages = fields.ListField(subfield=fields.StringField())
    rooms = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        # A contract's class attributes are parsers; its instances hold what they parsed.
        packages, rooms = cast("list[str]", self.packages), cast("list[str]", self.rooms)
        confined = [module for module in graph.modules if _inside(module, packages)]
        return _check(
            graph,
            {
                (importer, module)
                for module in confined
                for importer in graph.find_modules_that_directly_import(module)
                if not _inside(importer, rooms)
            },
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        _render(check)


@final
class AllowListContract(Contract):
    """A package may import itself and what is listed, nothing else: not even of the standard library.

    Options:
        package: the package that is held to the list.
        allowed: what it may import, with what is below each.
    """

    package = fields.StringField()
    allowed = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        package, allowed = cast("str", self.package), cast("list[str]", self.allowed)
        importers = [module for module in graph.modules if _inside(module, [package])]
        return _check(
            graph,
            {
                (importer, imported)
                for importer in importers
                for imported in graph.find_modules_directly_imported_by(importer)
                if not _inside(imported, [package, *allowed])
            },
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        _render(check)
