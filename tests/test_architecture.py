"""The import graph points one way: down. Each library has its place."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dspark_cli

ROOT = Path(dspark_cli.__file__).parent

LAYERS = [
    {"errors", "events"},
    {"schedule"},
    {"options"},
    {"metadata", "native", "text", "prompts", "stats", "models", "machine", "confidence", "files"},
    {"contract", "chat", "verify", "versions", "equivalence", "auto", "bounds", "tensors"},
    {"sizes", "storing"},
    {"plan"},
    {"engine", "render"},
    {"decode", "pair"},
    {"generate", "compare", "measure", "calibration", "peer"},
    {"train", "bench", "convert", "quantize"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# The package's own face: it names what the library has, and imports none of it before it is used.
FACE = ROOT / "__init__.py"
EVERY_FILE = sorted(ROOT.rglob("*.py"))
MODULES = [path for path in EVERY_FILE if path != FACE]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def part(path: Path) -> str:
    """The module or package right below the root: ``engine`` for ``engine/taps.py``."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


PARTS = {part(path) for path in MODULES}


def tree(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def imports(path: Path) -> set[str]:
    """Dotted names of all that a file imports, wherever in the file, as far as they are modules.

    ``from package import name`` counts as both, for the name may be a module.
    """
    found = set()
    for node in tree(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{named(path)}: a relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def parts_imported(path: Path) -> set[str]:
    """What a file imports from this package, in the names of the layers."""
    own = {name.split(".")[1] for name in imports(path) if name.startswith("dspark_cli.")}
    return own & PARTS


def libraries_imported(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


each_module = pytest.mark.parametrize("path", MODULES, ids=named)


def test_every_module_has_a_layer():
    """A new module is given its place before it is imported, and a layer names only modules."""
    assert set(RANK) == PARTS
    assert sum(map(len, LAYERS)) == len(RANK)


@each_module
def test_imports_point_down(path):
    """A module imports only lower layers and its own package."""
    here = part(path)

    assert {there for there in parts_imported(path) - {here} if RANK[there] >= RANK[here]} == set()


def test_renderers_never_see_a_model():
    """They show facts: events, statistics, and what can be read from a file without loading it."""
    seen = set().union(*(parts_imported(path) for path in MODULES if part(path) == "render"))

    assert seen <= {
        "contract", "equivalence", "errors", "events", "metadata", "options", "plan", "render",
        "sizes", "stats",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("ctypes", {"native"}),
        ("llama_cpp", {"native", "engine", "chat", "cli"}),
        ("rich", {"render", "cli"}),
        ("typer", {"cli"}),
        ("jinja2", {"chat"}),
        ("torch", {"train", "cli"}),
        ("matplotlib", {"train", "cli", "render"}),
        ("safetensors", {"train", "convert"}),
    ],
)
def test_each_library_has_its_place(library, homes):
    """Pointers stay under native, the terminal in render and cli, and PyTorch in the training."""
    users = {named(path) for path in EVERY_FILE if library in libraries_imported(path)}

    assert {user for user in users if part(ROOT / user) not in homes} == set()


def test_only_the_command_line_and_the_renderers_print():
    """stdout belongs to the answer: everything else hands its values up."""
    printing = {
        named(path)
        for path in EVERY_FILE
        for node in tree(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and part(path) not in {"cli", "render"}
    }

    assert printing == set()


@pytest.mark.parametrize("module", ["dspark_cli", "dspark_cli.cli.app"])
def test_llama_cpp_is_not_loaded_before_it_is_needed(module):
    """--help, --version and every refusal come at once."""
    program = f"import sys, {module}; assert 'llama_cpp' not in sys.modules"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_is_there():
    """What the package promises it can deliver, and nothing else."""
    for name in dspark_cli.__all__:
        assert getattr(dspark_cli, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'anything_else'"):
        dspark_cli.anything_else  # noqa: B018


@pytest.mark.parametrize("module", ["generate", "compare", "cli.train", "train.pipeline"])
def test_nothing_but_a_fit_needs_pytorch(module):
    """Running, checking and collecting work where the extra ``train`` is not installed."""
    program = f"import sys, dspark_cli.{module}; assert 'torch' not in sys.modules"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")
