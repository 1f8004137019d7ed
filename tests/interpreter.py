"""Triton's interpreter, made quicker: what it works out anew for each operation is kept.

Types of blocks and the shapes of tensors are made again for every operation, and that all of the
language is patched is found out again in each call of a helper: together more than half of its
time.  So are casts and broadcasts that change nothing.  No operation on values is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any


def quicken() -> None:
    """Once Triton's interpreter is imported, let it do so once; nothing to do before or again."""
    interpreter = sys.modules.get("triton.runtime.interpreter")
    patch = getattr(interpreter, "_patch_lang", None)
    if not hasattr(interpreter, "_LangPatchScope") or isinstance(patch, partial):
        return
    interpreter._patch_lang = partial(patch_once, interpreter, patch)
    interpreter._patch_attr = partial(patch_operation, interpreter)
    interpreter._get_np_dtype = partial(type_once, {}, interpreter._get_np_dtype)
    interpreter._validate_np_data_size = partial(size_once, {}, interpreter._validate_np_data_size)
    keep_shapes(interpreter.tl.core)
    keep_pairs(type(interpreter.interpreter_semantic))


def patch_once(interpreter: Any, patch: Callable[[Any], Any], function: Any) -> Any:
    """Patch the language unless it is, for good: the interpreter asks in each call of a helper."""
    language = interpreter.tl
    if any(language.core.is_builtin(module.arange) for module in (language, language.core)):
        patch(function)
    return interpreter._LangPatchScope()  # nothing to restore


def patch_operation(
    interpreter: Any, owner: Any, name: str, member: Any, _: Any, scope: Any
) -> None:
    """Give an operation the interpreter's semantics, without a look at the arguments."""
    semantic, arange = interpreter.interpreter_semantic, interpreter.tl.core.arange
    # this wrapper only asks whether there are semantics
    call = member.__wrapped__ if member.__code__ is arange.__code__ else member

    def operation(*args: Any, **named: Any) -> Any:
        named["_semantic"] = semantic
        return call(*args, **named)

    scope.set_attr(owner, name, operation)


def type_once(known: dict[str, Any], find: Callable[[Any], Any], of: Any) -> Any:
    """Find the type of NumPy for one of Triton: the interpreter makes a table for each question."""
    name = of.name
    if name not in known:
        known[name] = find(of)
    return known[name]


def size_once(
    known: dict[tuple[int, str], bool], fits: Callable[[Any, Any], bool], array: Any, of: Any
) -> bool:
    """Ask once whether numbers of NumPy are as long as those of a type may be."""
    key = array.itemsize, of.name
    if key not in known:
        known[key] = fits(array, of)
    return known[key]


def keep_shapes(core: Any) -> None:
    """Make each type of a block of numbers once, and for each shape what tensors say of it."""
    make_type, make_tensor = core.block_type.__init__, core.tensor.__init__
    types: dict[tuple[Any, ...], dict[str, Any]] = {}
    shapes: dict[tuple[int, ...], dict[str, Any]] = {}

    def of_block(self: Any, element_ty: Any, shape: Any) -> None:
        if type(element_ty) is not core.dtype:  # pointers, which have no name of their own
            return make_type(self, element_ty, shape)
        key = (element_ty.name, *[getattr(size, "value", size) for size in shape])
        if key not in types:
            make_type(self, element_ty, shape)
            types[key] = dict(vars(self))
        else:
            vars(self).update(types[key])

    def of_tensor(self: Any, handle: Any, type: Any) -> None:
        shape = type.shape.values if type.is_block() else ()
        key = (*shape,)
        if key not in shapes:
            make_tensor(self, handle, type)
            shapes[key] = {"shape": self.shape, "numel": self.numel}
        else:
            vars(self).update(shapes[key], handle=handle, type=type, dtype=type.scalar)

    core.block_type.__init__, core.tensor.__init__ = of_block, of_tensor


UNMIXED = {"int1", "int32", "int64", "fp32", "fp64"}
"""Number types that Triton does not convert if both operands have the same one."""

TAKES = {int: UNMIXED - {"int1"}, float: {"fp32", "fp64"}}
"""Number types that Triton converts a number of Python to, if the other operand has one of them."""


def keep_pairs(semantic: Any) -> None:
    """Leave operands of one type as they are, and make each constant beside a tensor once."""
    check, broadcast = semantic.binary_op_type_checking_impl, semantic.broadcast_impl_value
    constants: dict[tuple[str, str], Any] = {}

    def constant(self: Any, value: Any, kind: Any) -> Any:
        key = (kind.name, repr(value))  # which tells 0 from 0.0 and from -0.0
        if key not in constants:
            made = self.scalar_constant(value, kind.scalar)
            constants[key] = self.splat(made, kind.shape) if kind.is_block() else made
            constants[key].handle.data.flags.writeable = False
        return constants[key]

    def of_pair(self: Any, lhs: Any, rhs: Any, *rules: Any, **named: Any) -> Any:
        left, right = getattr(lhs, "type", None), getattr(rhs, "type", None)
        if left is not None and right is not None:
            if left.scalar.name == right.scalar.name and left.scalar.name in UNMIXED:
                return (lhs, rhs) if left.name == right.name else broadcast(self, lhs, rhs)
        elif (rules[2:] or (True,))[0] and named.get("arithmetic_check", True):
            kind, value = (right, lhs) if left is None else (left, rhs)
            taken = kind is not None and kind.scalar.name in TAKES.get(type(value), ())
            if taken and (type(value) is float or -(2**31) <= value < 2**31):
                made = constant(self, value, kind)
                return (made, rhs) if left is None else (lhs, made)
        return check(self, lhs, rhs, *rules, **named)

    semantic.binary_op_type_checking_impl = of_pair
