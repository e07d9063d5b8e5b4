"""The meaning of source code: its syntax tree without the parts that only people and tools read.

It leaves out comments, layout, docstrings, annotations of functions and local variables, imports only for
type checkers, the `description` and `title` of settings, and the code that displays a measurement. A class's
annotations count: in a pydantic model, they decide which values are valid and how they are read. This module
also finds the imports of a source.
"""

import ast
import hashlib
from typing import Any

WORDS = {"description", "title"}  # arguments of pydantic's Field(...) that have no effect


def meaning(source: bytes | str) -> str:
    """Return the SHA-256 of a source's meaning as hexadecimal digits, the same under every Python version.

    The result is empty if no code is left. Raise SyntaxError if this Python cannot parse the source.
    """
    module = _without_words(source)
    return hashlib.sha256(_text(module).encode()).hexdigest() if module.body else ""


def imports(source: bytes | str) -> list[str]:
    """Return the imports of a source as they are spelled there, with leading dots if they are relative."""
    names: list[str] = []
    for node in ast.walk(_without_words(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            joint = "" if module.endswith(".") else "."
            names += [module, *(f"{module}{joint}{alias.name}" for alias in node.names)]
    return list(dict.fromkeys(names))


def _without_words(source: bytes | str) -> ast.Module:
    module: ast.Module = _WithoutWords().visit(deciding(ast.parse(source)))
    return module


def _text(node: object) -> str:
    """Return a syntax tree as text, without empty fields, since later versions of Python add such fields."""
    if isinstance(node, ast.AST):
        fields = [
            f"{name}={_text(value)}" for name, value in ast.iter_fields(node) if value not in (None, [])
        ]
        return f"{type(node).__name__}({' '.join(fields)})"
    if isinstance(node, list):
        return f"[{' '.join(map(_text, node))}]"
    return repr(node)


class _WithoutWords(ast.NodeTransformer):
    in_class = False  # whether the visited statements are directly in the body of a class

    def _body(self, node: Any, in_class: bool = False) -> Any:
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        outside, self.in_class = self.in_class, in_class
        self.generic_visit(node)
        self.in_class = outside
        return node

    def visit_Module(self, node: ast.Module) -> Any:
        return self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return self._body(node, in_class=True)

    def visit_FunctionDef(self, node: Any) -> Any:
        node.returns = None
        return self._body(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        if self.in_class:
            return node
        return None if node.value is None else ast.Assign([node.target], node.value)

    def visit_Call(self, node: ast.Call) -> Any:
        if getattr(node.func, "id", getattr(node.func, "attr", "")) == "Field":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in WORDS]
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        only_for_checkers = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if only_for_checkers and not node.orelse else self.generic_visit(node)


# Methods of a measurement that display its table and have no effect on its rows.
SHOWN = {"summarise", "curve", "sheet", "answer", "lead", "section"}


def deciding(module: ast.Module) -> ast.Module:
    """Return the module; if it has a measurement, only the code that decides the rows of its table.

    That is the class without the methods that display the table, and the statements of the module that the
    class needs, directly or indirectly.
    """
    measurements: list[ast.ClassDef] = []
    for node in module.body:
        kinds = {"Measurement", *(known.name for known in measurements)}
        if isinstance(node, ast.ClassDef) and kinds & _bases(node):
            measurements.append(node)
    if not measurements:
        return module
    for node in measurements:
        node.body = [part for part in node.body if getattr(part, "name", None) not in SHOWN]
    needed: list[ast.stmt] = [node for node in measurements if _has_rows(node)]
    for part in needed:  # the list grows during the loop
        named = {"*", *(name.id for name in ast.walk(part) if isinstance(name, ast.Name))}
        needed += [node for node in module.body if node not in needed and named & _bound(node)]
    return ast.Module([node for node in module.body if node in needed], [])


def _has_rows(node: ast.ClassDef) -> bool:
    """Return whether a measurement may have rows; with the `measure` of its base class, it has none."""
    defines_measure = any(getattr(part, "name", "") == "measure" for part in node.body)
    return defines_measure or _bases(node) != {"Measurement"}


def _bases(node: ast.ClassDef) -> set[str]:
    return {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a statement of a module binds, or changes like NAME[0] = 1 and NAME.sort()."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Expr) or isinstance(getattr(node, "ctx", None), ast.Store):
        return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return {name for child in ast.iter_child_nodes(node) for name in _bound(child)}
