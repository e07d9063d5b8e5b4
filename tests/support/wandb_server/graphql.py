"""Answers a GraphQL document by what it selects: plain values, without a schema.

A value may be a callable: it is given the field's arguments. A field that a value does not have is answered
with None, or with an empty connection where `edges` are asked of it. Fragments of other types and fields
that a directive leaves out are answered too: clients take no notice.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    OperationDefinitionNode,
    SelectionSetNode,
    parse,
)
from graphql.utilities import value_from_ast_untyped

Arguments = dict[str, Any]
Resolver = Callable[[Arguments], Any]


class Refused(Exception):
    """The server's own error: its message goes to the client, with this HTTP status."""

    def __init__(self, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


class Document:
    """One operation with its variables."""

    def __init__(self, text: str, variables: Mapping[str, Any] | None) -> None:
        definitions = parse(text).definitions
        self.fragments = {
            node.name.value: node for node in definitions if isinstance(node, FragmentDefinitionNode)
        }
        (self.operation,) = (node for node in definitions if isinstance(node, OperationDefinitionNode))
        declared = self.operation.variable_definitions or ()
        self.variables = {
            node.variable.name.value: node.default_value and value_from_ast_untyped(node.default_value)
            for node in declared
        } | {**(variables or {})}

    def answer(self, resolvers: Mapping[str, Resolver]) -> dict[str, Any]:
        """What the resolvers of the fields at the top answer. Raise LookupError where one is not there."""
        asked = self._fields([self.operation.selection_set])
        if unknown := [node.name.value for node, *_ in asked.values() if node.name.value not in resolvers]:
            raise LookupError(f"the fields {', '.join(unknown)}")
        chosen: dict[str, Any] = self._select(resolvers, [self.operation.selection_set])
        return chosen

    def _select(self, value: Any, selections: list[SelectionSetNode]) -> Any:
        if value is None:
            return None
        if isinstance(value, list | tuple):
            return [self._select(item, selections) for item in value]
        chosen: dict[str, Any] = {}
        for name, nodes in self._fields(selections).items():
            inner = [each.selection_set for each in nodes if each.selection_set is not None]
            found = value.get(nodes[0].name.value)
            if callable(found):
                found = found(
                    {
                        argument.name.value: value_from_ast_untyped(argument.value, self.variables)
                        for argument in nodes[0].arguments or ()
                    }
                )
            elif found is None and "edges" in self._fields(inner):
                found = connection([])
            chosen[name] = self._select(found, inner) if inner else found
        return chosen

    def _fields(self, selections: Iterable[SelectionSetNode]) -> dict[str, list[FieldNode]]:
        """The nodes of each field by its name in the answer, with fragments opened."""
        found: dict[str, list[FieldNode]] = {}
        for selection in selections:
            for node in selection.selections:
                if isinstance(node, FieldNode):
                    name = node.alias.value if node.alias else node.name.value
                    found.setdefault(name, []).append(node)
                    continue
                fragment: Any = (
                    self.fragments[node.name.value] if isinstance(node, FragmentSpreadNode) else node
                )
                for name, nodes in self._fields([fragment.selection_set]).items():
                    found.setdefault(name, []).extend(nodes)
        return found


def connection(nodes: Iterable[Any]) -> dict[str, Any]:
    """All `nodes`, as one page."""
    edges = [{"node": node, "cursor": str(number)} for number, node in enumerate(nodes, start=1)]
    page = {"__typename": "PageInfo", "endCursor": str(len(edges)), "hasNextPage": False}
    return {"edges": edges, "pageInfo": page}
