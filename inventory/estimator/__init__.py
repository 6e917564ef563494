"""The estimator: what a request holds in each group on a given trajectory, and the most it can hold on any."""

from vstate.inventory.estimator.bound import bound, bound_blocks
from vstate.inventory.estimator.naive import naive_blocks
from vstate.inventory.estimator.occupancy import occupancy
from vstate.inventory.estimator.request import Attempt, RequestShape, Step, StepBlocks, Trajectory
from vstate.inventory.estimator.rules import Rules
from vstate.inventory.estimator.vectorised import bounds

__all__ = [
    "Attempt",
    "RequestShape",
    "Rules",
    "Step",
    "StepBlocks",
    "Trajectory",
    "bound",
    "bound_blocks",
    "bounds",
    "naive_blocks",
    "occupancy",
]
