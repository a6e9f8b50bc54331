"""Habits that no linter knows: how long things are, what prose promises, and that every module has its tests."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "catena"
TESTS = ROOT / "tests"

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70

# A ratchet: what is too long today, as path or path:function, and how long it is. Entries may only shrink and go.
TOO_LONG: dict[str, int] = {}

# Modules with code in them that have no test file of their own, and where they are tested instead.
TESTED_ELSEWHERE: dict[str, str] = {
    "broker/broker.py": "a table; every request of it is asked by real clients, in tests/clients",
    "broker/server.py": "with its connections, in tests/broker/test_connection.py",
    "errors.py": "says things, decides nothing; each error is raised in the tests of its module",
    "loglets/base.py": "the contract, run against every kind of loglet",
    "meta/base.py": "the contract, run against every meta store",
    "pipeline/report.py": "names only; jobs fill it in, in tests/test_jobs.py and tests/pipeline",
    "types.py": "names only",
}

# Files that must name such a path, and why.
ALLOWED_TRACES = {
    "src/catena/testing/s3_server.py": "SeaweedFS puts its sockets there, whatever TMPDIR says",
}

NOT_OURS = {"__pycache__", "build", "data", "demo-data", "dist"}
DOTTED_OF_OURS = {".ci", ".github", ".gitignore"}

MACHINE_TRACE = re.compile(r"(?<![\w.\-/}])/(?:home|root|Users|work|tmp|private|var/folders|var/tmp)\b")
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|HAC[K])\b")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
INLINE_PATH = re.compile(r"`([\w.\-]+(?:/[\w.\-]+)*/?)`")
PIN = re.compile(r"([a-z0-9\-]+)==[0-9a-z.]+")


def our_files() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        kept = [name for name in folders if name not in NOT_OURS and (name[0] != "." or name in DOTTED_OF_OURS)]
        folders[:] = sorted(kept)
        yield from (Path(folder, name) for name in sorted(names) if name[0] != "." or name in DOTTED_OF_OURS)


def our_texts() -> Iterator[tuple[str, str]]:
    for path in our_files():
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text()
        except UnicodeDecodeError:
            continue


def our_modules(where: str | tuple[str, ...] = "") -> Iterator[tuple[str, str, ast.Module]]:
    for name, text in our_texts():
        if name.endswith(".py") and name.startswith(where):
            yield name, text, ast.parse(text)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def too_long() -> Iterator[tuple[str, int]]:
    for name, text, tree in our_modules():
        if (lines := text.count("\n")) > MAX_FILE_LINES:
            yield name, lines
        for function in functions(tree):
            if (lines := length(function)) > MAX_FUNCTION_LINES:
                yield f"{name}:{function.name}", lines


def has_code(tree: ast.Module) -> bool:
    """Whether some function does something; contracts are classes of functions that only say what they would do."""

    def does_nothing(statement: ast.stmt) -> bool:
        return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)

    return any(not all(map(does_nothing, function.body)) for function in functions(tree))


def listed(remedy: str, offenders: list[str]) -> str:
    return "\n  ".join([f"{remedy}:", *offenders])


def test_nothing_is_too_long() -> None:
    assert dict(too_long()) == TOO_LONG, "split by verb or by state; where an entry shrank, shrink its limit too"


def test_no_trace_of_a_machine() -> None:
    found = {name: match.group() for name, text in our_texts() if (match := MACHINE_TRACE.search(text))}
    traces = [f"{name}: {trace}" for name, trace in found.items() if name not in ALLOWED_TRACES]
    assert not traces, listed("use tmp_path, or a path relative to the checkout", traces)
    assert ALLOWED_TRACES.keys() <= found.keys(), "ALLOWED_TRACES has entries that are not needed any more"


def test_nothing_is_left_unfinished() -> None:
    marks = [f"{name}: {match.group()}" for name, text in our_texts() if (match := UNFINISHED.search(text))]
    assert not marks, listed("do it, or write an issue", marks)


def test_every_module_says_what_it_is() -> None:
    product = ("src/", "sim/", "bench/", "dev.py")
    silent = [name for name, _, tree in our_modules(product) if tree.body and not ast.get_docstring(tree)]
    assert not silent, listed("begin it with a docstring", silent)


def test_prose_names_only_files_that_exist() -> None:
    missing = []
    for name, text in our_texts():
        if not name.endswith(".md") or name == "CHANGELOG.md":
            continue
        here = (ROOT / name).parent
        missing += [f"{name}: {link}" for link in LINK.findall(text) if not (here / link).exists()]
        for path in INLINE_PATH.findall(FENCED.sub("", text)):
            bases = (here, ROOT, PACKAGE)
            ours = path.endswith((".py", ".md")) or any((base / path.split("/")[0]).is_dir() for base in bases)
            if ours and not any((base / path).exists() for base in bases):
                missing.append(f"{name}: {path}")
    assert not missing, listed("it is not there", missing)


def is_tested(module: Path) -> bool:
    """a/b.py is tested in tests/a/test_b*.py; the modules of a package a/b/ may also be tested there, all together."""
    name = module.parent.name if module.stem == "__init__" else module.stem.strip("_")
    own = (TESTS / module.parent).glob(f"test_{name}*.py")
    together = (TESTS / module.parent.parent).glob(f"test_{module.parent.name}*.py") if len(module.parts) > 2 else ()
    return any(own) or any(together)


def test_every_module_has_its_tests() -> None:
    modules = [
        path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py")) if has_code(ast.parse(path.read_text()))
    ]
    untested = {module.as_posix() for module in modules if module.parts[0] != "testing" and not is_tested(module)}
    lacking = sorted(untested - TESTED_ELSEWHERE.keys())
    assert not lacking, listed("has no test file in the same place under tests", lacking)
    assert untested == TESTED_ELSEWHERE.keys(), "TESTED_ELSEWHERE has entries that are not needed any more"


def test_every_dependency_is_pinned_and_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    ranges = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    ranges += [item for extra in project["project"].get("optional-dependencies", {}).values() for item in extra]
    pinned = set()
    explained = (ROOT / "CONTRIBUTING.md").read_text()
    for path in sorted(ROOT.glob("requirements*.txt")):
        direct = True
        for line in path.read_text().splitlines():
            direct = direct and line != "# indirect"
            if not line or line.startswith("#") or line == "-r requirements.txt":
                continue
            pin = PIN.fullmatch(line)
            assert pin, f"{path.name}: {line!r} is not name==version"
            pinned.add(pin[1])
            assert not direct or f"| {pin[1]} |" in explained, f"CONTRIBUTING.md does not say why {pin[1]} is needed"
    assert {re.split(r"[^a-z0-9\-]", item)[0] for item in ranges} <= pinned
