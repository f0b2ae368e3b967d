"""Small changes of Python code, one at a time: what mutation testing puts into a module.

Each change is an edit of the source text. Annotations, messages of errors, logs and asserts are left alone because no
test should depend on them.
"""

import ast
import builtins
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any",
    "floor": "ceil", "ceil": "floor", "argmin": "argmax", "argmax": "argmin",
}  # fmt: skip
TINY, TINY_FACTOR = 1e-6, 1e6
"""Smaller numbers are mostly tolerances for rounding, of which twice the value would be as good."""
SILENT = ("log", "warn", "print")
FORMS = ("indent", "strict", "stacklevel")
"""Arguments of layout and of checks like `assert`: `zip(strict=True)` is one."""


@dataclass(frozen=True)
class Mutant:
    """One change: `before` becomes `after` in a function (empty at module level), for the `number`-th time there."""

    module: str
    function: str
    before: str
    after: str
    number: int
    line: int
    statement: tuple[int, int]
    """The first and last line of the statement (of a compound one, its head), counted from the function's first."""
    assigned: tuple[str, ...]
    """The names that the statement assigns."""
    digest: str
    """Of the function's text."""
    source: str

    @property
    def change(self) -> str:
        """What a list of explained mutants calls it."""
        return f"{self.before} -> {self.after}" + (f" #{self.number}" if self.number else "")

    @property
    def words(self) -> tuple[str, str, str]:
        """How a list of explained mutants finds it."""
        return self.module, self.function, self.change

    @property
    def place(self) -> str:
        return f"{self.module} {self.function} {self.change}"

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line} {self.function or 'module'}: {self.change}"


def mutants(module: str, source: str) -> list[Mutant]:
    """All changes of a module."""
    tree = ast.parse(source)
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = source.encode()
    seen: Counter[tuple[str, str, str]] = Counter()
    digests = function_digests(source)
    spans = functions(source)
    found = []
    for function, statement, node, after in _changes(tree):
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]
        before = " ".join(data[first:last].decode().split())
        key = (function, before, after)
        number = seen[key]
        seen[key] += 1
        text = (data[:first] + after.encode() + data[last:]).decode()
        offset = spans[function][0] if function else 0
        lines_of = (statement.lineno - offset, _head_end(statement) - offset)
        place = (node.lineno, lines_of, _assigned(statement), digests[function])
        found.append(Mutant(module, function, before, after, number, *place, text))
    return found


def functions(source: str) -> dict[str, tuple[int, int]]:
    """The first and last line of each function, by qualified name; inner ones belong to the outermost."""
    spans: dict[str, tuple[int, int]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                assert child.end_lineno is not None
                spans[prefix + child.name] = (child.lineno, child.end_lineno)
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(source), "")
    return spans


def function_digests(source: str) -> dict[str, str]:
    """The digest of each function's text, and of the whole module under the empty name."""
    lines = source.splitlines()
    spans = functions(source).items()
    texts = {name: "\n".join(lines[first - 1 : last]) for name, (first, last) in spans} | {"": source}
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}


def _head_end(statement: ast.stmt) -> int:
    """The last line of a statement without the statements in it."""
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno
    return max(statement.lineno, last or 0)


def _assigned(statement: ast.stmt) -> tuple[str, ...]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return tuple(node.id for target in targets if target for node in ast.walk(target) if isinstance(node, ast.Name))


def _changes(tree: ast.Module) -> Iterator[tuple[str, ast.stmt, ast.expr | ast.stmt, str]]:
    """Function, statement, node and new text of every change."""

    def visit(
        node: ast.AST, function: str, prefix: str, statement: ast.stmt | None
    ) -> Iterator[tuple[str, ast.stmt, ast.expr | ast.stmt, str]]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or _is_left_alone(child):
                    continue
                if isinstance(child, ast.ClassDef):
                    yield from visit(child, function, f"{prefix}{child.name}.", child)
                    continue
                inside = function
                if isinstance(child, ast.FunctionDef) and not function:
                    inside = prefix + child.name
                around = child if isinstance(child, ast.stmt) else statement
                for after in _replacements(child):
                    yield inside, around, child, after  # type: ignore[misc]
                yield from visit(child, inside, prefix, around)

    yield from visit(tree, "", "", None)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.keyword) and node.arg in FORMS:
        return True
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and _is_type(node.left) and _is_type(node.right):
        return True
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in SILENT


def _is_type(node: ast.expr) -> bool:
    """Whether an operand of `|` is a type: None, a class of Python's own, or one with a capital letter."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr) and _is_type(node.left) and _is_type(node.right)
    if isinstance(node, ast.Name):
        return isinstance(getattr(builtins, node.id, None), type) or (node.id[0].isupper() and not node.id.isupper())
    return isinstance(node, ast.Constant) and node.value is None


def _replacements(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare():
            for k, operator in enumerate(node.ops):
                ops = [*node.ops[:k], COMPARISONS[type(operator)](), *node.ops[k + 1 :]]
                yield _text(ast.Compare(node.left, ops, node.comparators))
        case ast.BinOp() if not _is_text(node):
            yield _text(ast.BinOp(node.left, OPERATORS.get(type(node.op), ast.Mult)(), node.right))
        case ast.AugAssign():
            yield ast.unparse(ast.AugAssign(node.target, OPERATORS.get(type(node.op), ast.Mult)(), node.value))
        case ast.BoolOp():
            yield _text(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield _text(node.operand)
        case ast.Constant(value=bool()):
            yield repr(not node.value)
        case ast.Constant(value=int()):
            yield repr(node.value + 1)
        case ast.Constant(value=float()):
            factor = TINY_FACTOR if abs(node.value) < TINY else 2.0
            yield repr(factor * node.value if node.value else 1.0)
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            yield ast.unparse(ast.Call(ast.Name(NAMES[name]), node.args, node.keywords))
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in NAMES:
            yield ast.unparse(ast.Call(ast.Attribute(owner, NAMES[name]), node.args, node.keywords))
        case ast.Expr(value=ast.Call()):
            yield "pass"


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(side, ast.JoinedStr) or _is_string(side) for side in sides)


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"
