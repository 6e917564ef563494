"""The mixer of Mamba2: its state and its weights on one rank.

Sources: vLLM 0.32 ``layers/mamba/mamba_mixer2.py``, ``MambaStateShapeCalculator.mamba2_state_shape``.
"""

from __future__ import annotations

from dataclasses import dataclass

from vstate.inventory.adapters.experts import FLOAT_BYTES
from vstate.inventory.adapters.plan import StatePart
from vstate.inventory.adapters.registry import Context
from vstate.inventory.adapters.states import tail
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import StateClass


@dataclass(frozen=True)
class Mamba2:
    """A mixer, whole.

    Attributes:
        hidden: Width of the model.
        heads: Heads.
        head: Elements of a head.
        groups: Groups of heads that share the input and output projections of the state.
        state: Elements of the state per element of a head.
        kernel: Inputs that the convolution sees.
        kernel_bias: Whether the convolution has a bias.
        bias: Whether the projections in and out have one.
        normed: Whether the output is normed.
    """

    hidden: int
    heads: int
    head: int
    groups: int
    state: int
    kernel: int
    kernel_bias: bool = True
    bias: bool = False
    normed: bool = True

    @property
    def inner(self) -> int:
        """Elements of all heads."""
        return self.heads * self.head

    def channels(self, share: Share) -> int:
        """Return a rank's channels of the convolution: its heads, and what goes into and comes out of their states.

        A single group is repeated until there is one per rank (``extra_groups_for_head_shards``).

        Raises:
            VstateError: Several groups cannot be divided.
        """
        return share.of(self.inner + 2 * self._groups(share) * self.state, "channels of the convolution")

    def _groups(self, share: Share) -> int:
        if self.groups % share.ranks == 0:
            return self.groups
        if self.groups != 1:
            raise VstateError(f"{share.model}: {self.groups} groups of heads cannot be shared by {share.ranks} ranks")
        return share.ranks

    def parts(self, share: Share, context: Context, dtype: str) -> tuple[StatePart, StatePart]:
        """Return the state of a layer: the convolution's tail, and the recurrent state as ``dtype``."""
        heads = share.of(self.heads, "heads of the state")
        state = StatePart(StateClass.RECURRENT, (heads, self.head, self.state), dtype)
        return (tail(context, self.kernel, self.channels(share)), state)

    def weight_bytes(self, share: Share, width: int) -> int:
        """Return the bytes of a layer's mixer.

        The kernel, which is there twice: as a parameter and as the buffer that the kernels read; the projection in,
        to the gate, the convolution and one step size per head; two numbers per head and a decay as float32; the norm;
        the projection out.
        """
        heads, channels = share.of(self.heads, "heads of the state"), self.channels(share)
        inner = share.of(self.inner, "elements of the heads")
        elements = 2 * self.kernel * channels + channels * self.kernel_bias
        elements += (inner + channels + heads) * (self.hidden + self.bias)
        elements += 2 * heads + inner * self.normed + share.row(self.inner, self.hidden, bias=self.bias)
        return elements * width + heads * FLOAT_BYTES
