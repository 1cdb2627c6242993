"""The structure that docs/architecture.md promises: short modules, small rooms, no import circle, one import name."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("wan", "transports", "emulation", "experiments")
SOURCES = sorted(
    path for folder in (*FOLDERS, "bicoastal/interface", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)
MOST_LINES = 400
MOST_MODULES = 16  # besides __init__.py


def module_of(path: Path) -> str:
    """Return the dotted name of a source file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    return name if parts[0] == "bicoastal" else f"bicoastal.{name}"


MODULES = {module_of(path): path for path in SOURCES if path.parts[len(ROOT.parts)] != "benchmarks"}


def imports_of(path: Path) -> Iterator[str]:
    """Yield the modules of this package that a source file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bicoastal"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("bicoastal"))


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach one another (Tarjan, "Depth-first search and linear graph algorithms")."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(arrows.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return found


def room_of(module: str) -> str:
    """Return the room of a module; a module that stands directly in one of the four folders is a room of its own."""
    parts = module.split(".")
    if parts[1] not in FOLDERS:
        return "bicoastal.interface"
    path = MODULES[module]
    if path.name == "__init__.py":
        return module
    return module if len(parts) == 3 and path.parent.parent == ROOT else ".".join(parts[:-1])


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}}) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_at_most_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_a_room_has_few_modules() -> None:
    rooms: dict[Path, int] = defaultdict(int)
    for path in MODULES.values():
        rooms[path.parent] += path.name != "__init__.py"
    assert {str(room.relative_to(ROOT)): count for room, count in rooms.items() if count > MOST_MODULES} == {}


def test_rooms_do_not_import_one_another_in_a_circle() -> None:
    arrows: dict[str, set[str]] = defaultdict(set)
    for module, path in MODULES.items():
        for imported in imports_of(path):
            if imported in MODULES and room_of(imported) != room_of(module):
                arrows[room_of(module)].add(room_of(imported))
    assert circles(arrows) == []


def test_the_folders_are_imported_through_the_package_alone() -> None:
    pattern = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(FOLDERS)})\b", re.MULTILINE)
    paths = [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "vagrant").glob("*.py")]
    assert [str(path) for path in paths if pattern.search(path.read_text(encoding="utf-8"))] == []


def test_every_room_says_what_it_holds() -> None:
    for name, path in MODULES.items():
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), name


def test_the_map_names_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in MODULES.values() if path.name == "__init__.py"} - {"interface"}
    assert [room for room in sorted(rooms) if f"`{room}/`" not in text] == []
