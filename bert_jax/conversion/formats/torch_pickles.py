"""Parse the pickle of a PyTorch file with an allow-list, as a description of tensors.

Only the names (`_ALLOWED`) that `torch.save` uses for a state dict mean something. Any other name, such as a class of
a trainer's settings, becomes a `Placeholder` that ignores all that is done with it: no name is imported, and no
function of the file's choice is called.
"""

import collections
import io
import pickle
import pickletools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import ml_dtypes
import numpy as np

from bert_jax.conversion.formats import lazy_tensors
from bert_jax.errors import InputError

_STORAGES = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}
# The opcodes that `torch.save` writes, under Python 2 and 3, for state dicts and the settings beside them.
# fmt: off
_OPCODES = frozenset({
    "PROTO", "FRAME", "MEMOIZE", "MARK", "STOP", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "BINUNICODE", "SHORT_BINUNICODE", "BINSTRING",
    "SHORT_BINSTRING", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE", "BINPUT",
    "LONG_BINPUT", "BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "BINPERSID", "REDUCE", "BUILD",
    "NEWOBJ", "NEWOBJ_EX", "EMPTY_SET", "ADDITEMS", "BINBYTES", "SHORT_BINBYTES",
})
# fmt: on
# Every opcode can make an object, so bounds on opcodes bound memory. The bound is a number per storage that the pickle
# has named so far (a tensor takes half of it), plus a number for everything else, such as a list of keys.
_OPCODES_A_STORAGE = 80
_OPCODES_BESIDE = 2 * lazy_tensors.MOST_TENSORS
# Opcodes that make a container, which takes ten times the memory of another object.
_CONTAINERS = frozenset({"EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET", "REDUCE", "NEWOBJ", "NEWOBJ_EX"})
_CONTAINERS_A_STORAGE = 8  # a parameter takes 4, a module 1
_CONTAINERS_BESIDE = 1000
# The bounds grow with the file: one more opcode, container or tensor for each of these numbers of bytes.
_BYTES_AN_OPCODE, _BYTES_A_CONTAINER, _BYTES_A_TENSOR = 2**8, 2**11, 2**16
_DEEPEST = 20  # maximum depth of nested tuples
_MOST_PLACEHOLDERS = 500  # maximum number of different names


# These three are named tuples because a pickle can set attributes on its objects, and named tuples refuse that.
class _StorageType(NamedTuple):
    """A stand-in for `torch.FloatStorage` and the other storage types."""

    name: str

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(_STORAGES[self.name])


class Storage(NamedTuple):
    """A storage of `numel` elements, which the file keeps under `key`; a view begins at element `offset`."""

    key: str
    dtype: np.dtype
    numel: int
    offset: int = 0


class Tensor(NamedTuple):
    """A tensor as the pickle describes it: its offset, shape and strides in a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Placeholder:
    """An object of a class outside the allow-list, which ignores all that a pickle does with it.

    Each name has a subclass of its own; `named` is the name, such as `argparse.Namespace`.
    """

    __slots__ = ()
    named = ""

    def __new__(cls, *args: Any, **settings: Any) -> "Placeholder":
        return object.__new__(cls)

    def __init__(self, *args: Any, **settings: Any) -> None:
        pass

    def _ignore(self, *args: Any, **settings: Any) -> "Placeholder":
        return self

    __call__ = __setstate__ = __setitem__ = append = extend = add = _ignore


def _integer(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"expected {what} to be a non-negative integer, found {value!r}")
    return value


def _rebuild_tensor(
    storage, offset, shape, strides, requires_grad=False, hooks=None, metadata=None
) -> Tensor | Placeholder:
    """Return the description of a tensor; a stand-in for `torch._utils._rebuild_tensor_v2`."""
    if isinstance(storage, Placeholder):
        return storage
    if not isinstance(storage, Storage) or not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise InputError("expected a tensor's storage, shape and strides, found something else")
    shape = lazy_tensors.checked_shape(shape, "a tensor")
    strides = tuple(_integer(stride, "a tensor's stride") for stride in strides)
    return Tensor(storage, _integer(offset, "a tensor's offset"), shape, strides)


def _rebuild_parameter(tensor, requires_grad=True, hooks=None, attributes=None) -> Tensor | Placeholder:
    """Return the description of a parameter; a stand-in for `torch._utils._rebuild_parameter` and for
    `_rebuild_parameter_with_state`."""
    if not isinstance(tensor, Tensor | Placeholder):
        raise InputError("expected a parameter to hold a tensor, found something else")
    return tensor


class _Closed:
    """A function that a pickle can only call, since it has no attributes to set."""

    __slots__ = ("function",)
    function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]):
        object.__setattr__(self, "function", function)

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise InputError(f"the pickle tries to set {name!r}")


class _StateDict(collections.OrderedDict):
    """An ordered dict that ignores attributes, such as the `_metadata` that `torch.save` attaches to a state dict."""

    def __setstate__(self, state: Any) -> None:
        pass


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Closed(lambda *items: _StateDict(*items)),
    ("torch._utils", "_rebuild_tensor_v2"): _Closed(_rebuild_tensor),
    ("torch._utils", "_rebuild_parameter"): _Closed(_rebuild_parameter),
    ("torch._utils", "_rebuild_parameter_with_state"): _Closed(_rebuild_parameter),
    **{("torch", name): _StorageType(name) for name in _STORAGES},
}


def whole_object(named: str) -> InputError:
    """Return the error of a file that holds an object of a class where a state dict is expected."""
    return InputError(
        f"expected a state dict, found an object of {_printable(named)}, as torch.save(model, ...) writes; nothing was "
        "run; load it in PyTorch with the model's code, and save model.state_dict()"
    )


def _printable(name: str) -> str:
    return repr(name[:100])[1:-1]  # escapes line breaks


def _is_placeholder(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Placeholder)


def most_in(size: int) -> int:
    """Return the maximum number of tensors in a file of `size` bytes."""
    return lazy_tensors.MOST_TENSORS + size // _BYTES_A_TENSOR


def longest_in(size: int) -> int:
    """Return the maximum number of bytes of the pickle in a file of `size` bytes."""
    return lazy_tensors.LONGEST_DESCRIPTION + size // _BYTES_AN_OPCODE


class _Nesting:
    """Track how deeply a pickle nests tuples, since hashing a very deep tuple overflows Python's stack.

    The stack and the memo hold the depth of each object; only tuples have a depth above 0, since the other containers
    cannot be hashed or are defined here.
    """

    def __init__(self) -> None:
        self._stack: list[int | None] = []  # None is a mark
        self._memo: dict[int, int] = {}

    def follow(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        """Apply an opcode to the stack and the memo of depths."""
        if opcode.name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            index = len(self._memo) if argument is None else int(argument)
            self._memo[index] = (self._stack[-1] if self._stack else 0) or 0
            return
        inside, taken = 0, opcode.stack_before
        if pickletools.markobject in taken:
            while self._stack and (depth := self._stack.pop()) is not None:
                inside = max(inside, depth)
            taken = taken[: taken.index(pickletools.markobject)]
        for _ in taken:
            inside = max(inside, (self._stack.pop() if self._stack else 0) or 0)
        nested = 0
        if opcode.name in ("BINGET", "LONG_BINGET"):
            nested = self._memo.get(int(argument), 0)
        elif opcode.name.startswith("TUPLE"):
            nested = inside + 1
        if nested > _DEEPEST:
            raise InputError(f"refused: the pickle nests more than {_DEEPEST} tuples, which no state dict needs")
        self._stack += [None if kind is pickletools.markobject else nested for kind in opcode.stack_after]


class Unpickler(pickle.Unpickler):
    """An unpickler that knows only the names in `_ALLOWED`.

    Args:
        file: the pickle.
        size: size in bytes of the file that holds the pickle.

    Attributes:
        itemsizes: key of a storage -> bytes of an element, which the older layout needs to find the storages.
    """

    def __init__(self, file: io.BytesIO, size: int = 0):
        super().__init__(file, encoding="utf-8")
        self._file = file
        self._size = size
        self._placeholders: dict[tuple[str, str], type[Placeholder]] = {}
        self.itemsizes: dict[str, int] = {}

    def load(self) -> Any:
        """Check the opcodes of the next object of the file, then load it."""
        start = self._file.tell()
        nesting = _Nesting()
        storages = containers = 0
        most_opcodes = _OPCODES_BESIDE + self._size // _BYTES_AN_OPCODE
        most_containers = _CONTAINERS_BESIDE + self._size // _BYTES_A_CONTAINER
        most_tensors = most_in(self._size)
        for count, (opcode, argument, _) in enumerate(pickletools.genops(self._file)):
            storages += opcode.name == "BINPERSID"
            if count == 1:  # the first opcode after PROTO
                self._refuse_object(opcode.name, argument)
            containers += opcode.name in _CONTAINERS
            if storages > most_tensors:
                raise InputError(f"expected at most {most_tensors} tensors, found more")
            if (
                count > most_opcodes + _OPCODES_A_STORAGE * storages
                or containers > most_containers + _CONTAINERS_A_STORAGE * storages
            ):
                raise InputError(f"refused: the pickle takes {count} opcodes, which no state dict needs")
            if opcode.name not in _OPCODES:
                raise InputError(f"refused: the pickle uses {opcode.name}, which no state dict needs; nothing was run")
            # A memo index makes the unpickler allocate that many slots, however short the file.
            if opcode.name == "LONG_BINPUT" and int(argument or 0) > self._file.getbuffer().nbytes:
                raise InputError(f"refused: the pickle memoises at {argument}, past its own length")
            nesting.follow(opcode, argument)
        self._file.seek(start)
        return super().load()

    def _refuse_object(self, opcode: str, argument: Any) -> None:
        """Raise InputError when the first opcode of a pickle names the class of an object that is no state dict."""
        if opcode == "GLOBAL" and tuple(argument.split(" ", 1)) not in _ALLOWED:
            raise whole_object(argument.replace(" ", "."))

    def find_class(self, module: str, name: str) -> Any:
        """Return the object that a name stands for: from the allow-list, or else a placeholder class."""
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        if (module, name) not in self._placeholders:
            if len(self._placeholders) == _MOST_PLACEHOLDERS:
                raise InputError(f"refused: the pickle names more than {_MOST_PLACEHOLDERS} classes")
            kind = type("Placeholder", (Placeholder,), {"__slots__": (), "named": _printable(f"{module}.{name}")})
            self._placeholders[module, name] = kind
        return self._placeholders[module, name]

    def persistent_load(self, pid: Any) -> Any:
        """Return the storage of a persistent id `('storage', type, key, device, numel)`.

        A storage of a type that parameters do not have is a placeholder.

        The older layout appends None or a view `(key, offset, numel)`, and refers to a model's class with its source
        code by `('module', class, path, code)`.
        """
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module" and _is_placeholder(pid[1]):
            return pid[1]
        if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
            raise InputError(f"expected a reference to a storage, found {str(pid)[:80]!r}")
        _, kind, key, _, numel = pid[:5]
        if _is_placeholder(kind):
            return kind()
        if not isinstance(kind, _StorageType):
            raise InputError(f"expected a storage type, found {str(kind)[:80]!r}")
        numel, offset = _integer(numel, "a storage's size"), 0
        if len(pid) == 6 and pid[5] is not None:
            _, offset, numel = pid[5]
            offset, numel = _integer(offset, "a view's offset"), _integer(numel, "a view's size")
        self.itemsizes[str(key)] = kind.dtype.itemsize
        return Storage(str(key), kind.dtype, numel, offset)
