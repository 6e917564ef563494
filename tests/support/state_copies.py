"""The state copies of vLLM's `align` mode on a CPU: stand-ins for two Triton kernels.

With prefix caching on, a model with recurrent layers moves a request's state into the block that the
next step writes (pre-copy), and keeps the state at a block boundary that accepted drafts crossed
(post-copy). With drafts, vLLM 0.32 does both in Triton kernels that have no replacement on a CPU. Here
they are, registered as vLLM's own CPU platform registers its others. The decisions and the bytes are
those of `precopy_mamba_align_fused_kernel`, `postprocess_mamba_fused_kernel` and
`_copy_mamba_state_block` in `vllm/v1/worker/mamba_utils.py`; a test compares them with the kernels'
own bodies.
"""

import ctypes
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import NamedTuple

KERNELS = "vllm.v1.worker.mamba_utils"
TOLD = "stand-in kernels: the copies of recurrent state in align mode"
"""What an engine's log says when they are in use."""


class Layout(NamedTuple):
    """Where the states lie, in the order in which both kernels take it; an entry per layer and state."""

    block_tables: object
    row_stride: int
    bases: object
    block_strides: object
    element_sizes: object
    inner_sizes: object
    conv_widths: object
    groups: object
    dim_rows: object
    dim_row_strides: object

    def block(self, state, row, column):
        """The block in a column of a request's table."""
        table = int(self.block_tables[int(self.groups[state])])
        entry = table + 4 * (row * self.row_stride + column)
        return ctypes.c_int32.from_address(entry).value

    def address(self, state, block):
        return int(self.bases[state]) + block * int(self.block_strides[state])


def copy_state(layout, state, row, source, target, bias, dim_first):
    """Copy one state of a request from a column of its table to another.

    Of a convolution state, which holds a window of tokens, the first ``bias`` tokens are left behind; of
    a recurrent one the copy is taken ``bias`` columns later, where the state after that many drafts is.
    """
    to = layout.address(state, layout.block(state, row, target))
    element, width = int(layout.element_sizes[state]), int(layout.conv_widths[state])
    if width == 0:
        came_from = layout.address(state, layout.block(state, row, source + bias))
        ctypes.memmove(to, came_from, int(layout.inner_sizes[state]) * element)
        return
    came_from = layout.address(state, layout.block(state, row, source))
    if not dim_first:
        token = int(layout.inner_sizes[state]) * element
        ctypes.memmove(to, came_from + bias * token, (width - bias) * token)
        return
    stride = int(layout.dim_row_strides[state])
    for dim in range(int(layout.dim_rows[state])):
        ctypes.memmove(to + dim * stride, came_from + dim * stride + bias * element, (width - bias) * element)


def pre_copy(targets, sources, biases, *rest, CONV_STATE_DIM_FIRST, **_):  # noqa: N803 (the kernel's own name)
    """Before the forward: move each request's state to the block that this step writes."""
    *layout, mapping, requests = rest
    assert mapping is None
    layout = Layout(*layout)
    for row in range(requests):
        source, target, bias = int(sources[row]), int(targets[row]), int(biases[row])
        if source < 0 or source == target:
            continue
        for state in range(len(layout.bases)):
            copy_state(layout, state, row, source, target, bias, CONV_STATE_DIM_FIRST)


def post_copy(accepted, sources, scheduled, computed, drafts, *rest, block_size, CONV_STATE_DIM_FIRST, **_):  # noqa: N803
    """After the forward: keep the state at the last block boundary that accepted tokens reached."""
    *layout, accepted_after, mapping, requests = rest
    assert mapping is None
    layout = Layout(*layout)
    for row in range(requests):
        running = int(computed[row]) + int(scheduled[row]) - int(drafts[row])
        aligned = (running + int(accepted[row]) - 1) // block_size * block_size
        if aligned < running:
            continue
        source, target, bias = int(sources[row]), aligned // block_size - 1, aligned - running
        if source == target:
            accepted_after[row] = 1
            if bias == 0:
                continue
        for state in range(len(layout.bases)):
            copy_state(layout, state, row, source, target, bias, CONV_STATE_DIM_FIRST)


class _Register(MetaPathFinder):
    """Registers both when vLLM loads the module of the kernels."""

    def find_spec(self, name, path, target=None):
        if name != KERNELS:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def loaded(module):
            from vllm.triton_utils.dispatcher import register_kernels

            execute(module)
            register_kernels(
                {
                    f"{KERNELS}.precopy_mamba_align_fused_kernel": pre_copy,
                    f"{KERNELS}.postprocess_mamba_fused_kernel": post_copy,
                }
            )
            print(TOLD, file=sys.stderr, flush=True)

        spec.loader.exec_module = loaded
        return spec


def install():
    """Have every vLLM that this process loads use the stand-ins."""
    sys.meta_path.insert(0, _Register())
