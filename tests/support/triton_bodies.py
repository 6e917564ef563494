"""Runs the Python body of a Triton kernel on the host, one program after the other.

Without Triton, vLLM's `@triton.jit` leaves a kernel the plain function that it is. `Language` stands
for the module `tl` in it, as far as the kernels under test use it: each value is an array of Python
integers, and a pointer is one that knows the size of what it points to. Programs run in order, so a
kernel whose programs race is not shown to be right.
"""

import ctypes
import itertools
import operator

import numpy as np


class Cells:
    """An integer, or a vector of them; pointers count in elements of ``size`` bytes."""

    __hash__ = None

    def __init__(self, values, size=None):
        self.values, self.size = np.asarray(values, dtype=object), size

    def to(self, kind):
        return Cells(self.values, kind)

    def _with(self, other, operation):
        other = other.values if isinstance(other, Cells) else other
        return Cells(operation(self.values, other * self.size if self.size else other), self.size)

    def _compared(self, other, operation):
        other = other.values if isinstance(other, Cells) else other
        return Cells(operation(self.values, other))

    def __add__(self, other):
        if isinstance(other, Cells) and other.size:
            return other + self
        return self._with(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other):
        return self._with(other, operator.sub)

    def __rsub__(self, other):
        return Cells(other) - self

    def __mul__(self, other):
        return self._compared(other, operator.mul)

    __rmul__ = __mul__

    def __floordiv__(self, other):
        return self._compared(other, operator.floordiv)

    def __and__(self, other):
        return self._compared(other, operator.and_)

    def __xor__(self, other):
        return self._compared(other, operator.xor)

    def __neg__(self):
        return Cells(-self.values)

    def __lt__(self, other):
        return self._compared(other, operator.lt)

    def __ge__(self, other):
        return self._compared(other, operator.ge)

    def __gt__(self, other):
        return self._compared(other, operator.gt)

    def __eq__(self, other):
        return self._compared(other, operator.eq)

    def __ne__(self, other):
        return self._compared(other, operator.ne)

    def __index__(self):
        return int(self.values)

    def __bool__(self):
        return bool(self.values)


class Language:
    """What the kernels call `tl`; a type is the number of bytes that a pointer to it steps."""

    uint8, uint16, uint32, uint64, int32 = 1, 2, 4, 8, 4
    int64 = None  # only ever what a value becomes, never what is pointed to

    def __init__(self):
        self.program = (0, 0, 0)

    @staticmethod
    def pointer_type(size):
        return size

    def program_id(self, axis):
        return Cells(self.program[axis])

    @staticmethod
    def arange(start, end):
        return Cells(list(range(start, end)))

    @staticmethod
    def minimum(first, second):
        return first if first < second else Cells(getattr(second, "values", second))

    @staticmethod
    def cdiv(number, by):
        return (number + (by - 1)) // by

    @staticmethod
    def load(pointer, mask=None):
        chosen = np.broadcast_to(True if mask is None else mask.values, pointer.values.shape)
        loaded = np.zeros(pointer.values.shape, dtype=object)
        for place in np.ndindex(loaded.shape):
            if chosen[place]:
                data = ctypes.string_at(int(pointer.values[place]), pointer.size)
                loaded[place] = int.from_bytes(data, "little", signed=True)
        return Cells(loaded)

    @staticmethod
    def store(pointer, value, mask=None):
        shape = pointer.values.shape
        chosen = np.broadcast_to(True if mask is None else mask.values, shape)
        values = np.broadcast_to(getattr(value, "values", value), shape)
        for place in np.ndindex(shape):
            if chosen[place]:
                data = int(values[place]).to_bytes(pointer.size, "little", signed=True)
                ctypes.memmove(int(pointer.values[place]), data, pointer.size)


class Launched:
    """A kernel whose body runs on the host, launched as Triton launches it: ``kernel[grid](...)``.

    ``tuning`` takes the place of constants that say in what portions work is done, and nothing else.
    """

    def __init__(self, body, language, **tuning):
        self.body, self.language, self.tuning = body, language, tuning

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            given = [Cells(a.data_ptr(), a.element_size()) if hasattr(a, "data_ptr") else a for a in arguments]
            for self.language.program in itertools.product(*map(range, grid)):
                self.body(*given, **constants | self.tuning)

        return launch
