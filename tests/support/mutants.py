"""Changes one term of a module's arithmetic at a time."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult}
"""What becomes of an operator."""


def mutants(source: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield each changed module with a sentence that says what was changed where.

    Operators between values are swapped; texts that are added or formatted are left alone.
    """
    tree = ast.parse(source)
    places = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp | ast.AugAssign) and _counts(node)]
    for number, node in enumerate(places):
        changed = copy.deepcopy(tree)
        twin = [n for n in ast.walk(changed) if isinstance(n, ast.BinOp | ast.AugAssign) and _counts(n)][number]
        twin.op = SWAPS[type(node.op)]()
        yield f"line {node.lineno}: {ast.unparse(node)}", ast.fix_missing_locations(changed)


def _counts(node: ast.BinOp | ast.AugAssign) -> bool:
    """Say whether an operation is arithmetic on counts: not on texts, tuples, lists or types."""
    if type(node.op) not in SWAPS:
        return False
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
    collections = (ast.JoinedStr, ast.Tuple, ast.List, ast.ListComp, ast.Dict, ast.Set)
    texts = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts)
    return not texts and not any(isinstance(part, collections) for part in parts)
