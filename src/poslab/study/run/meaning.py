"""What source code does, apart from its words: the syntax tree without what only readers and tools use.

Left out are comments, layout, docstrings, annotations of functions and of local variables, what only type
checkers import, and the `description` and `title` of a setting. The annotations of a class stay: of a
pydantic model they decide which values are taken, and as what.
"""

import ast
import hashlib
from typing import Any

WORDS = {"description", "title"}  # arguments of pydantic's Field(...) that decide nothing


def meaning(source: bytes | str) -> str:
    """SHA-256, hexadecimal, of what the source means, the same under every Python that can parse it.

    Raises SyntaxError where none can.
    """
    return hashlib.sha256(_text(_WithoutWords().visit(ast.parse(source))).encode()).hexdigest()


def _text(node: object) -> str:
    """A syntax tree as text, without empty fields: later versions of Python have more of these."""
    if isinstance(node, ast.AST):
        fields = [
            f"{name}={_text(value)}" for name, value in ast.iter_fields(node) if value not in (None, [])
        ]
        return f"{type(node).__name__}({' '.join(fields)})"
    if isinstance(node, list):
        return f"[{' '.join(map(_text, node))}]"
    return repr(node)


class _WithoutWords(ast.NodeTransformer):
    in_class = False  # whether the statements that are visited are a class's own

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
