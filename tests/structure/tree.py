# SPDX-License-Identifier: Apache-2.0
"""The package as a graph and as numbers, read from its source: what the structure tests hold to their rules."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "nemo_gym_video"
NAME = "nemo_gym_video"

# From the ground up; a floor imports only from below or from itself.
FLOORS = (
    "errors",
    "validation",
    "messages",
    "media",
    "processors",
    "contract",
    "alignment",
    "tasks",
    "prepare",
    "trainers",
    "report",
    "servers",
    "launch",
    "baseline",
    "commands",
    "cli",
)
# The door and the table of old names stand outside the house: everything may be reached through them.
DOORS = ("__init__", "_moved")

Graph = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement: the modules it may name, its line, and whether it stands inside a function."""

    names: tuple[str, ...]
    line: int
    in_function: bool
    comment: str = ""


def modules(package: Path = PACKAGE) -> list[Path]:
    """Every file of the house, without its doors."""
    found = sorted(package.rglob("*.py"))
    return [path for path in found if path.parent != package or path.stem not in DOORS]


def dotted(path: Path, package: Path = PACKAGE) -> str:
    """``alignment.turns`` for a file; a package's ``__init__.py`` is the package."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Every import statement of a file, those inside functions and under ``TYPE_CHECKING`` too."""
    return imports_of(path.read_text(encoding="utf-8"))


def imports_of(text: str) -> tuple[Import, ...]:
    """As ``imports``, for source text."""
    return tuple(_imports(ast.parse(text), _comments(text), in_function=False))


def _imports(node: ast.AST, comments: Mapping[int, str], *, in_function: bool) -> Iterator[Import]:
    above: ast.stmt | None = None
    comment = ""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            # One comment may stand over several imports in successive lines.
            follows = above is not None and above.end_lineno == child.lineno - 1
            comment = _comment_of(child, comments) or (comment if follows else "")
            above = child
            yield Import(_named(child), child.lineno, in_function, comment)
        inside = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports(child, comments, in_function=inside)


def _named(node: ast.Import | ast.ImportFrom) -> tuple[str, ...]:
    if isinstance(node, ast.Import):
        return tuple(alias.name for alias in node.names)
    if node.level or not node.module:
        raise AssertionError(f"relative import in line {node.lineno}")
    return tuple(f"{node.module}.{alias.name}" for alias in node.names)


def _comments(text: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _comment_of(node: ast.stmt, comments: Mapping[int, str]) -> str:
    """The comment on one of the statement's lines, else the one in the line above."""
    for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
        if line in comments:
            return comments[line]
    return comments.get(node.lineno - 1, "")


def graph(package: Path = PACKAGE) -> dict[str, frozenset[str]]:
    """Module to the modules of the house that it imports, wherever in the file."""
    files = {dotted(path, package): path for path in modules(package)}
    edges = {}
    for name, path in files.items():
        found: set[str] = set()
        for one in imports(path):
            for full in one.names:
                if full.startswith(f"{NAME}."):
                    known = longest(full.removeprefix(f"{NAME}."), files)
                    found |= {known} if known else set()
        edges[name] = frozenset(found - {name})
    return edges


def longest(name: str, known: Iterable[str]) -> str | None:
    """The longest dotted prefix of ``name`` that is a module."""
    parts = name.split(".")
    heads = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((head for head in heads if head in known), None)


def rooms(edges: Graph, room_of: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The graph of rooms: an arrow where any module of one imports any module of another."""
    found: dict[str, set[str]] = {room: set() for room in room_of.values()}
    for module, targets in edges.items():
        found[room_of[module]] |= {room_of[target] for target in targets} - {room_of[module]}
    return {room: frozenset(targets) for room, targets in found.items()}


def circles(edges: Graph) -> list[list[str]]:
    """Groups of nodes that reach one another (Tarjan's strongly connected components of more than one node)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(edges.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            group = sorted(stack[at:])
            del stack[at:]
            if len(group) > 1:
                found.append(group)

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found)


def function_lengths(path: Path) -> list[tuple[int, str]]:
    """Lines of every function and method, its decorators and docstring counted."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found.append(((node.end_lineno or first) - first + 1, f"{path.name}:{node.name}"))
    return found


def public_classes(path: Path) -> list[str]:
    """Names of the classes at the top of a file that do not begin with an underscore."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def quantile(values: Iterable[int], share: float) -> float:
    """The value below which ``share`` of the sorted values lie, interpolated between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    steps = [later - earlier for earlier, later in pairwise(ordered)]
    return ordered[low] + (steps[low] * (place - low) if low < len(steps) else 0)
