"""Small changes to the code of functions; a test should detect each change."""

import ast
import inspect
import warnings
from collections.abc import Container, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

__all__ = ["Mutant", "function", "functions_of", "mutants_of"]

OPPOSITES = [
    (ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div),
    (ast.LShift, ast.RShift), (ast.BitAnd, ast.BitOr),
]  # fmt: skip
SWAPS: dict[type[Any], list[type[Any]]] = {}
for one, other in OPPOSITES:
    SWAPS[one], SWAPS[other] = [other], [one]
SWAPS |= {ast.FloorDiv: [ast.Mult], ast.Mod: [ast.Mult], ast.Pow: [ast.Mult]}
for at, beside in [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE)]:
    SWAPS[at].append(beside)
    SWAPS[beside].append(at)

NAMES = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum",
    "maximum": "minimum", "argmax": "argmin", "argmin": "argmax",
}  # fmt: skip
SIDES = {"left": "right", "right": "left"}
SYMMETRIC = {
    "min",
    "max",
    "minimum",
    "maximum",
    "lcm",
    "not_equal",
}  # the arguments of these calls are not swapped
SIMPLE = ast.Return | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Raise | ast.Assert
Function = ast.FunctionDef | ast.AsyncFunctionDef
ESTIMATES = {"otm.certificate": {"Work.multiply"}}
"""Functions that estimate work; only the order of magnitude of their results matters."""


@dataclass(frozen=True)
class Mutant:
    """One change to one function.

    Attributes
    ----------
    module, name : str
        The module, and the qualified name of the function in it.
    line : int
        Line of the statement.
    before, after : str
        The old and the new statement, or its first line.
    code : CodeType
        The changed code of the function.
    """

    module: str
    name: str
    line: int
    before: str
    after: str
    code: CodeType

    @property
    def key(self) -> str:
        """Name of the change, independent of its line number."""
        return f"{self.module}:{self.name}: {self.before} → {self.after}"


def functions_of(module: ModuleType) -> dict[str, FunctionType]:
    """Return the functions and methods of a module by their qualified names."""
    found = {}
    scopes = [("", vars(module))]
    for prefix, scope in scopes:
        for name, value in scope.items():
            plain = function(value)
            if isinstance(value, type) and value.__module__ == module.__name__:
                scopes.append((f"{prefix}{name}.", vars(value)))
            elif plain is not None and plain.__code__.co_filename == module.__file__:
                found[prefix + name] = plain
    return found


def function(value: Any) -> FunctionType | None:
    """Return the function of a method, property or cached property."""
    for attribute in ("fget", "func", "__func__"):
        value = getattr(value, attribute, value)
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


def mutants_of(module: ModuleType, names: Container[str] | None = None) -> Iterator[Mutant]:
    """Yield all changes to the functions of a module, or to those of some names."""
    tree = ast.parse(inspect.getsource(module))
    parts = {node: part for part in tree.body for node in ast.walk(part)}
    starts = {f.__code__.co_firstlineno: (name, f) for name, f in functions_of(module).items()}
    for node in ast.walk(tree):
        if not isinstance(node, Function):
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        name, plain = starts.get(first, ("", None))
        if plain is None:  # an overload, or an inner function, which changes with the outer one
            continue
        if name in ESTIMATES.get(module.__name__, ()) or (names is not None and name not in names):
            continue
        seen = set()
        for line, before, after in _changes(node):
            if (line, after) in seen or before == after:
                continue
            seen.add((line, after))
            code = _code_at(_compiled(parts[node], module), name, first)
            if code.co_freevars == plain.__code__.co_freevars:
                yield Mutant(module.__name__, name, line, before, after, code)


def _compiled(part: ast.stmt, module: ModuleType) -> CodeType:
    """Compile a function or class of a module."""
    flags = module.annotations.compiler_flag  # all modules use postponed annotations
    with warnings.catch_warnings(action="ignore"):  # a mutant may call a literal
        return compile(ast.Module([part], []), module.__file__ or "", "exec", flags)


def _code_at(code: CodeType, name: str, line: int) -> CodeType:
    waiting = [code]
    for each in waiting:
        if each.co_qualname == name and each.co_firstlineno == line:
            return each
        waiting += [constant for constant in each.co_consts if isinstance(constant, CodeType)]
    raise LookupError(name)


def _changes(tree: Function) -> Iterator[tuple[int, str, str]]:
    """Make and undo each change of the tree in place; yield its line, old and new statement."""
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    for statement in body:
        for node, parent, field, around in list(_below(statement, tree, "body", statement)):
            for new in _replacements(node):
                before = _shown(around)
                _put(parent, field, node, new)
                ast.fix_missing_locations(tree)
                yield around.lineno, before, _shown(new if node is around else around)
                _put(parent, field, new, node)


def _put(parent: ast.AST, field: str, old: ast.AST, new: ast.AST) -> None:
    siblings = getattr(parent, field)
    if isinstance(siblings, list):
        siblings[next(i for i, item in enumerate(siblings) if item is old)] = new
    else:
        setattr(parent, field, new)


def _below(
    node: ast.AST, parent: ast.AST, field: str, around: Any
) -> Iterator[tuple[Any, ast.AST, str, Any]]:
    """Yield all nodes that may change, each with its parent and its statement."""
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    around = node if isinstance(node, ast.stmt) else around
    yield node, parent, field, around
    if isinstance(node, ast.Raise):  # a raise is removed as a whole; its message does not change
        return
    if _asks_for_work(node):  # also removed as a whole, because the amount is an estimate
        return
    function = isinstance(node, Function)  # its signature does not change
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"} or (function and name == "args"):
            continue
        if name == "slice" and _has_one_entry(node):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield from _below(item, node, name, around)


def _asks_for_work(node: ast.AST) -> bool:
    """Whether this statement of the checker reserves work in advance."""
    match node:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id="work" | "self"), attr="multiply" | "spend")
            )
        ):
            return True
    return False


def _has_one_entry(node: ast.AST) -> bool:
    """Whether this is `x.nonzero()[0]`: the tuple has one entry for an array [n]."""
    match node:
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr="nonzero"), args=[])):
            return True
    return False


def _shown(statement: ast.AST) -> str:
    """Return a simple statement's code, or a compound statement's first line."""
    text = ast.unparse(statement)
    return text if isinstance(statement, SIMPLE) else text.splitlines()[0]


def _replacements(node: Any) -> Iterator[ast.AST]:
    if isinstance(node, ast.stmt):
        yield from _other_statements(node)
    elif isinstance(node, ast.Call):
        yield from _other_calls(node)
    elif isinstance(node, ast.Constant):
        yield from _other_constants(node.value)
    else:
        yield from _other_operators(node)


def _other_statements(node: ast.stmt) -> Iterator[ast.AST]:
    """Remove a statement, or negate its condition."""
    match node:
        case ast.AugAssign():
            for swap in SWAPS.get(type(node.op), ()):
                yield ast.AugAssign(node.target, swap(), node.value)
            yield ast.Pass()
        case ast.If() | ast.While() if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            yield type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.Return(value=ast.expr()):
            yield ast.Return(ast.Constant(None))
        case ast.Raise() | ast.Break() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield ast.Pass()


def _other_constants(value: Any) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
        yield ast.Constant(value - 1)
    elif value in SIDES:
        yield ast.Constant(SIDES[value])


def _other_operators(node: Any) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            for i, operator in enumerate(node.ops):
                for swap in SWAPS[type(operator)]:
                    operators = [*node.ops[:i], swap(), *node.ops[i + 1 :]]
                    yield ast.Compare(node.left, operators, node.comparators)
        case ast.BinOp():
            for swap in SWAPS.get(type(node.op), ()):
                yield ast.BinOp(node.left, swap(), node.right)
        case ast.BoolOp():
            yield ast.BoolOp(SWAPS[type(node.op)][0](), node.values)
        case ast.UnaryOp():
            yield node.operand
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    """Call the opposite function, remove the call, or swap its arguments."""
    named = node.func
    name = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
    positional = not any(isinstance(argument, ast.Starred) for argument in node.args)
    if name in NAMES:
        method = isinstance(named, ast.Attribute)
        opposite = (
            ast.Attribute(named.value, NAMES[name], ast.Load())
            if method
            else ast.Name(NAMES[name], ast.Load())
        )
        yield ast.Call(opposite, node.args, node.keywords)
    if node.args and positional:
        yield node.args[0]
        if name in SYMMETRIC and len(node.args) > 1:
            yield node.args[1]
    elif isinstance(named, ast.Attribute) and not node.args:
        yield named.value
    if len(node.args) > 1 and positional and name not in {*SYMMETRIC, "isinstance"}:
        swapped = [node.args[1], node.args[0], *node.args[2:]]
        yield ast.Call(node.func, swapped, node.keywords)
