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
    interpreter._get_np_dtype = partial(type_once, {}, interpreter._get_np_dtype)
    keep_shapes(interpreter.tl.core)
    keep_pairs(type(interpreter.interpreter_semantic))


def patch_once(interpreter: Any, patch: Callable[[Any], Any], function: Any) -> Any:
    """Patch the language unless it is: the interpreter asks again in each call of a helper."""
    language = interpreter.tl
    if any(language.core.is_builtin(module.arange) for module in (language, language.core)):
        return patch(function)
    return interpreter._LangPatchScope()  # nothing to restore


def type_once(known: dict[str, Any], find: Callable[[Any], Any], of: Any) -> Any:
    """Find the type of NumPy for one of Triton: the interpreter makes a table for each question."""
    name = of.name
    if name not in known:
        known[name] = find(of)
    return known[name]


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


def keep_pairs(semantic: Any) -> None:
    """Leave two tensors of one type and shape as they are: to cast or broadcast returns them."""
    check = semantic.binary_op_type_checking_impl

    def of_pair(self: Any, lhs: Any, rhs: Any, *rules: Any, **named: Any) -> Any:
        kind = getattr(lhs, "type", None)
        if kind is not None and kind.scalar.name in UNMIXED:
            other = getattr(rhs, "type", None)
            if other is not None and kind.name == other.name:
                return lhs, rhs
        return check(self, lhs, rhs, *rules, **named)

    semantic.binary_op_type_checking_impl = of_pair
