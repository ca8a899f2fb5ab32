"""Counts what a reader of the code meets: modules, functions, types, and the path of one fit.

    python scripts/house.py                  the whole package, and the path of a fit
    python scripts/house.py tacit.results    one package, without the path
    python scripts/house.py --modules        also the modules on the path of the fit

Code lines have a token other than a comment or a docstring. A helper is a private function at the top
of a module. The path is that of ``tacit.glm``, ``tacit.fit`` and ``summary`` with default settings:
functions that are called, not those that run while a module is imported.
"""

import argparse
import ast
import collections
import io
import subprocess
import sys
import tokenize
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
SMALL = 60  # code lines

_SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef

_WALK = """
import sys
import warnings
from pathlib import Path

import numpy as np

modules, functions, switches, last, importing = set(), set(), 0, None, 0


def profile(frame, event, _):
    global switches, last, importing
    code, name = frame.f_code, frame.f_globals.get("__name__", "")
    if event not in ("call", "return") or name.partition(".")[0] != "tacit":
        return
    if code.co_name == "<module>":
        importing += 1 if event == "call" else -1
        return
    if event == "return" or importing:
        return
    modules.add(name)
    functions.add((code.co_filename, code.co_firstlineno, code.co_qualname))
    package = name.split(".")[1] if "." in name else name
    switches += last is not None and package != last
    last = package


warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, 400)
table = {"x": x, "y": (rng.uniform(size=400) < 1 / (1 + np.exp(-x))).astype(int)}
import tacit
schema = tacit.Schema({"x": tacit.Number(-1, 1), "y": tacit.Binary()})
glm, fit, budget = tacit.glm, tacit.fit, tacit.Budget(1, 1e-5)
sys.setprofile(profile)
str(fit(glm("y ~ x", schema=schema), table, budget=budget).summary())
sys.setprofile(None)
named = [each for each in functions if "<" not in each[2].rpartition(".")[2]]
print(f"{len(modules)} modules, {len(named)} functions, {switches} switches between packages")
print("\\n".join(sorted(modules)))
"""


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("package", nargs="?", default="tacit")
    parser.add_argument("--modules", action="store_true", help="name the modules of the path")
    asked = parser.parse_args()
    for name, value in counts(SOURCE.joinpath(*asked.package.split("."))).items():
        print(f"{name:<32}{value:>10,}")
    if asked.package == "tacit":
        first, *modules = walk()
        print(f"{'path of a fit':<32}{first}")
        if asked.modules:
            print(*modules, sep="\n")


def counts(folder: Path) -> dict[str, float]:
    """What there is in a package, by name."""
    found: collections.Counter[str] = collections.Counter()
    module_names: collections.Counter[str] = collections.Counter()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree, lines = ast.parse(text), code_lines(text)
        nodes = list(ast.walk(tree))
        used = collections.Counter(node.id for node in nodes if isinstance(node, ast.Name))
        helpers = [
            node.name
            for node in tree.body
            if isinstance(node, _FUNCTION) and node.name.startswith("_")
        ]
        found["modules"] += 1
        found["code lines"] += lines
        found["functions"] += sum(isinstance(node, _FUNCTION) for node in nodes)
        found[f"modules below {SMALL} code lines"] += lines < SMALL
        found["Any"] += used["Any"]
        found["protocols"] += sum(
            isinstance(node, ast.ClassDef) and "Protocol" in map(_base, node.bases)
            for node in nodes
        )
        found["helpers"] += len(helpers)
        found["helpers used once"] += sum(used[name] == 1 for name in helpers)
        if not path.stem.startswith("__"):
            module_names[path.stem] += 1
    found["module names used twice"] = sum(number > 1 for number in module_names.values())
    per_thousand = round(1000 * found["Any"] / found["code lines"], 1)
    return {**found, "Any per 1,000 code lines": per_thousand}


def code_lines(text: str) -> int:
    """The number of lines with a token other than a comment or a docstring."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | _FUNCTION) and ast.get_docstring(node):
            first = node.body[0]
            docstrings |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SKIPPED:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def walk() -> list[str]:
    """The path of a fit: how long it is, and its modules. In a process of its own, to import anew."""
    command = [sys.executable, "-c", _WALK]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def _base(node: ast.expr) -> str:
    return ast.unparse(node).partition("[")[0].rpartition(".")[2]


if __name__ == "__main__":
    main()
