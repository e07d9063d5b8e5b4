"""Answers a GraphQL document by what it selects: plain values, cut to the asked fields, without a schema.

A value may be a callable: it is given the field's arguments. A field that a value does not have is answered
with None, or with an empty connection where `edges` are asked of it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
    Undefined,
    parse,
)
from graphql.utilities import value_from_ast_untyped

Arguments = dict[str, Any]
Resolver = Callable[[Arguments], Any]

INTERFACES = {"ArtifactSequence": "ArtifactCollection"}


class Refused(Exception):
    """The server's own error: its message goes to the client, with this HTTP status."""

    def __init__(self, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


class Document:
    """One operation with its variables; `name` is the operation's."""

    def __init__(self, text: str, variables: Mapping[str, Any] | None) -> None:
        definitions = parse(text).definitions
        self.fragments = {
            node.name.value: node for node in definitions if isinstance(node, FragmentDefinitionNode)
        }
        (self.operation,) = (node for node in definitions if isinstance(node, OperationDefinitionNode))
        self.name = self.operation.name.value if self.operation.name else ""
        defaults = {
            node.variable.name.value: value_from_ast_untyped(node.default_value)
            for node in self.operation.variable_definitions or ()
            if node.default_value is not None
        }
        self.variables = {**defaults, **(variables or {})}

    def roots(self) -> list[str]:
        """The fields asked for at the top, e.g. `upsertBucket`."""
        asked = self._fields([self.operation.selection_set], None)
        return [nodes[0].name.value for nodes in asked.values()]

    def answer(self, resolvers: Mapping[str, Resolver]) -> dict[str, Any]:
        chosen: dict[str, Any] = self._select(resolvers, [self.operation.selection_set])
        return chosen

    def _select(self, value: Any, selections: list[SelectionSetNode]) -> Any:
        if value is None:
            return None
        if isinstance(value, list | tuple):
            return [self._select(item, selections) for item in value]
        chosen: dict[str, Any] = {}
        for name, nodes in self._fields(selections, value.get("__typename")).items():
            field = nodes[0].name.value
            inner = [each.selection_set for each in nodes if each.selection_set is not None]
            found = value.get(field)
            if callable(found):
                found = found(self._arguments(nodes[0]))
            elif found is None and "edges" in self._fields(inner, None):
                found = connection([], {})
            chosen[name] = self._select(found, inner) if inner else found
        return chosen

    def _fields(self, selections: Iterable[SelectionSetNode], own: str | None) -> dict[str, list[FieldNode]]:
        """The nodes of each field by its name in the answer, with fragments of its type opened."""
        found: dict[str, list[FieldNode]] = {}
        for selection in selections:
            for node in selection.selections:
                if not self._included(node):
                    continue
                if isinstance(node, FieldNode):
                    name = node.alias.value if node.alias else node.name.value
                    found.setdefault(name, []).append(node)
                    continue
                fragment: Any = node
                if isinstance(node, FragmentSpreadNode):
                    fragment = self.fragments[node.name.value]
                condition = fragment.type_condition and fragment.type_condition.name.value
                if own is None or condition in (None, own, INTERFACES.get(own)):
                    for name, nodes in self._fields([fragment.selection_set], own).items():
                        found.setdefault(name, []).extend(nodes)
        return found

    def _included(self, node: SelectionNode) -> bool:
        conditions = {
            directive.name.value: value_from_ast_untyped(argument.value, self.variables)
            for directive in node.directives or ()
            for argument in directive.arguments or ()
        }
        return bool(conditions.get("include", True)) and not conditions.get("skip", False)

    def _arguments(self, node: FieldNode) -> Arguments:
        given = {
            argument.name.value: value_from_ast_untyped(argument.value, self.variables)
            for argument in node.arguments or ()
        }
        cleaned: Arguments = _without_undefined(given)
        return cleaned


def connection(nodes: Iterable[Any], arguments: Arguments) -> dict[str, Any]:
    """The page of `nodes` that `first` and `after` ask for."""
    every = list(nodes)
    start = int(arguments.get("after") or 0)
    first = arguments.get("first")
    end = len(every) if first is None else min(len(every), start + int(first))
    edges = [{"node": every[index], "cursor": str(index + 1)} for index in range(start, end)]
    page = {
        "__typename": "PageInfo",
        "endCursor": str(end) if edges else None,
        "hasNextPage": end < len(every),
    }
    return {"edges": edges, "pageInfo": page}


def _without_undefined(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_undefined(item) for key, item in value.items() if item is not Undefined}
    if isinstance(value, list):
        return [_without_undefined(item) for item in value]
    return value
