"""Write docs/api.md: every public name of `import poslab`, with its docstring.

`python dev/api_page.py`, in the project's folder, prints the page. Signatures are read from the
source, so that they are the same in every version of Python.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import poslab

HEAD = """\
# API

The public names of `import poslab` with their docstrings; [library.ipynb](library.ipynb) shows them in use.
`python dev/api_page.py > docs/api.md` writes this page. Modules are internal and may change, except for these
names and those in [extending.md](extending.md).

A `Part` is the name of an option, or a mapping with the keys of its file in conf/. A `Table` is a mapping of
column names to lists of equal length. An invalid request raises a `ValueError` with a one-line message.
`poslab.__version__` is the version that `poslab --version` prints.

Shapes: B batch, T tokens, D width of the model, H heads, K width of a head, W width of the rotated part, V
its width after rotation, C rotated pairs, Q queries, N keys or distances. L is the training length in tokens.
"""


def page() -> str:
    """Return docs/api.md."""
    return "\n".join([HEAD, *(block for name in poslab._MODULES for block in _entry(name))])


def _entry(name: str) -> Iterator[str]:
    value = getattr(poslab, name)
    if not inspect.isclass(value):
        yield _block(f"## poslab.{name}", _signature(_parsed(value)), value)
        return
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    head = f"class {name}({bases})" if bases else f"class {name}"
    if dataclasses.is_dataclass(value):
        fields = [node for node in _parsed(value).body if isinstance(node, ast.AnnAssign)]
        head += ":\n" + "\n".join(f"    {ast.unparse(field)}" for field in fields)
    yield _block(f"## poslab.{name}", head, value)
    for member in _parsed(value).body:
        public = isinstance(member, ast.FunctionDef) and (
            not member.name.startswith("_") or member.name == "__init__"
        )
        if public and ast.get_docstring(member):
            yield _member(name, member)


def _block(title: str, code: str, value: Any) -> str:
    return f"{title}\n\n```python\n{code}\n```\n\n{inspect.cleandoc(value.__doc__ or '')}\n"


def _member(owner: str, member: ast.FunctionDef) -> str:
    is_property = any(
        isinstance(decorator, ast.Name) and decorator.id in ("property", "cached_property")
        for decorator in member.decorator_list
    )
    head = f"{member.name}: {_annotation(member.returns)}" if is_property else _signature(member)
    text = inspect.cleandoc(ast.get_docstring(member) or "")
    return f"### {owner}.{member.name}\n\n```python\n{head}\n```\n\n{text}\n"


def _parsed(value: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def _signature(function: ast.FunctionDef) -> str:
    """Return a function's signature; one parameter per line if it does not fit on one line."""
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + [ast.unparse(value) for value in args.defaults]
    parameters = [_parameter(argument, default) for argument, default in zip(plain, defaults, strict=True)]
    parameters = [parameter for parameter in parameters if parameter != "self"]
    if args.vararg:
        parameters.append(f"*{_parameter(args.vararg, None)}")
    elif args.kwonlyargs:
        parameters.append("*")
    for argument, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        parameters.append(_parameter(argument, None if default is None else ast.unparse(default)))
    if args.kwarg:
        parameters.append(f"**{_parameter(args.kwarg, None)}")
    returns = f" -> {_annotation(function.returns)}"
    line = f"{function.name}({', '.join(parameters)}){returns}"
    if len(line) <= 100:
        return line
    inner = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"{function.name}(\n{inner}){returns}"


def _parameter(argument: ast.arg, default: str | None) -> str:
    named = f"{argument.arg}: {_annotation(argument.annotation)}" if argument.annotation else argument.arg
    return named if default is None else f"{named}{' = ' if argument.annotation else '='}{default}"


def _annotation(annotation: ast.expr | None) -> str:
    """Return a type as in the source, without the quotes of a forward reference."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return "None" if annotation is None else ast.unparse(annotation)


if __name__ == "__main__":
    print(page(), end="")
