"""Expressions in a recipe's YAML, on whole numbers and texts.

Examples: `pairs - 2 * chunks >= 1`, `{40: 48, 125: 16}[tier]`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, Field

Term = int | str
Words = Mapping[str, Term]
_Value = Callable[[Words], Any]

_OF_NUMBERS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_OF_ANYTHING: dict[type[ast.AST], Callable[[Term, Term], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NAME = re.compile(r"\{([a-z_]+)\}")


def evaluate(text: str, words: Words) -> Term:
    """Compute an expression. A comparison gives 0 or 1. A text of digits in `words` counts as a number.

    Raises:
        ValueError: a name is unknown, a text is given instead of a number, or the expression has no value.
    """
    try:
        value = _compiled(text)(words)
    except ZeroDivisionError:
        raise ValueError(f"`{text}` divides by zero") from None
    return value if isinstance(value, str) else int(value)


def fill(text: str, words: Words) -> str:
    """Replace each `{name}` in `text` by its value. Raises ValueError if a name is unknown."""
    return _NAME.sub(lambda match: str(_known(words, match[1])), text)


def _is_an_expression(text: str) -> str:
    _compiled(text)
    return text


Expression = Annotated[str, Field(max_length=200), AfterValidator(_is_an_expression)]
"""A text that `evaluate` can compute."""


@lru_cache
def _compiled(text: str) -> _Value:
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"not an expression: {text!r}") from None


def _value(node: ast.expr) -> _Value:
    match node:
        case ast.Constant(value=int() | str() as constant):
            return _applied(lambda: _term(constant))
        case ast.Name(id=name):
            return lambda words: _term(_known(words, name))
        case (
            ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right])
        ) if type(op) in _OF_NUMBERS:
            return _applied(_OF_NUMBERS[type(op)], _number(left), _number(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OF_ANYTHING:
            return _applied(_OF_ANYTHING[type(op)], _value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as arguments, keywords=[]) if (
            name in _FUNCTIONS
        ):
            return _applied(_FUNCTIONS[name], *map(_number, arguments))
        case ast.Subscript(value=ast.Dict(keys=keys, values=values), slice=key) if all(keys):
            # A key is None in `{**table}` alone.
            rows = [(_value(head), _value(value)) for head, value in zip(keys, values, strict=True) if head]
            return _chosen(rows, _value(key), ast.unparse(key))
    raise ValueError(
        f"not in an expression: {ast.unparse(node)!r}; it has whole numbers, texts, names, + - * // %, one comparison, "
        f"min(...), max(...) and tables ({{1: 2}}[name])"
    )


def _applied(function: Callable[..., Any], *values: _Value) -> _Value:
    return lambda words: function(*(value(words) for value in values))


def _number(node: ast.expr) -> _Value:
    value = _value(node)

    def number(words: Words) -> int:
        term = value(words)
        if isinstance(term, str):
            raise ValueError(f"`{ast.unparse(node)}` is {term!r}, which is no number")
        return int(term)

    return number


def _chosen(rows: list[tuple[_Value, _Value]], key: _Value, name: str) -> _Value:
    def chosen(words: Words) -> Any:
        table, wanted = {head(words): value for head, value in rows}, key(words)
        if wanted not in table:
            raise ValueError(f"`{name}` is {wanted!r}; known: {', '.join(map(str, table))}")
        return table[wanted](words)

    return chosen


def _known(words: Words, name: str) -> Term:
    if name not in words:
        raise ValueError(f"nothing is known as {name}; known: {', '.join(sorted(words))}")
    return words[name]


def _term(term: Term) -> Term:
    return int(term) if isinstance(term, str) and _NUMBER.fullmatch(term) else term
