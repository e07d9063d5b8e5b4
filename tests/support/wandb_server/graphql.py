"""Answers a GraphQL document by what it selects: plain values, without a schema.

A value may be a callable: it is given the field's arguments. A field that a value does not have is answered
by ALIKE, else with None, or with an empty connection where `edges` are asked of it. Fragments of other types
and fields that a directive leaves out are answered too: clients take no notice.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graphql import FieldNode, FragmentDefinitionNode, FragmentSpreadNode, OperationDefinitionNode, parse
from graphql.utilities import value_from_ast_untyped

Arguments = dict[str, Any]
Row = dict[str, Any]
Resolver = Callable[[Arguments], Any]
# Values that the client needs but ignores, by field name.
ALIKE = {
    "createdAt": "2026-01-01T00:00:00",
    "isBenchmark": False,
    "tags": [],
    "ttlDurationSeconds": -2,
    "ttlIsInherited": True,
    "uploadHeaders": [],
}


class Refused(Exception):
    """An error of the server: its message is sent to the client, with this HTTP status."""

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
        self.variables = {
            node.variable.name.value: node.default_value and value_from_ast_untyped(node.default_value)
            for node in self.operation.variable_definitions or ()
        } | {**(variables or {})}

    def answer(self, resolvers: Mapping[str, Resolver]) -> Row:
        """Return the answers of the resolvers of the top fields. Raise LookupError if one is missing."""
        asked = self._fields([self.operation.selection_set])
        if unknown := {nodes[0].name.value for nodes in asked.values()} - resolvers.keys():
            raise LookupError(f"the fields {', '.join(unknown)}")
        chosen: Row = self._select(resolvers, [self.operation.selection_set])
        return chosen

    def _select(self, value: Any, selections: list[Any]) -> Any:
        if value is None:
            return None
        if isinstance(value, list | tuple):
            return [self._select(item, selections) for item in value]
        chosen: Row = {}
        for name, nodes in self._fields(selections).items():
            inner = [each.selection_set for each in nodes if each.selection_set is not None]
            field = nodes[0].name.value
            if field == "__typename" and field not in value:  # the client knows it
                continue
            found = value.get(field, ALIKE.get(field))
            if callable(found):
                given = nodes[0].arguments or ()
                found = found({a.name.value: value_from_ast_untyped(a.value, self.variables) for a in given})
            elif found is None and "edges" in self._fields(inner):
                found = connection([])
            chosen[name] = self._select(found, inner) if inner else found
        return chosen

    def _fields(self, selections: Iterable[Any]) -> dict[str, list[FieldNode]]:
        """Return the nodes of each field by its name in the answer, with fragments expanded."""
        found: dict[str, list[FieldNode]] = {}
        for node in (node for selection in selections for node in selection.selections):
            if isinstance(node, FieldNode):
                found.setdefault((node.alias or node.name).value, []).append(node)
                continue
            fragment: Any = self.fragments[node.name.value] if isinstance(node, FragmentSpreadNode) else node
            for name, nodes in self._fields([fragment.selection_set]).items():
                found.setdefault(name, []).extend(nodes)
        return found


def connection(nodes: Iterable[Any]) -> Row:
    """Return all `nodes` as one page."""
    edges = [{"node": node, "cursor": str(number)} for number, node in enumerate(nodes, start=1)]
    return {"edges": edges, "pageInfo": {"endCursor": str(len(edges)), "hasNextPage": False}}
