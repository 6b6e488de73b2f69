"""Optimisers under the names of `mlx.optimizers`, gradient clipping, and schedules of the learning rate.

    optimizer = AdamW(learning_rate=1e-3)
    parameters = optimizer.update(parameters, gradients)

Arrays are immutable, so a step gives new parameters, evaluated. AdamW is always bias-corrected, as torch's is."""

from ._optimizers import *  # noqa: F403
from ._optimizers import __all__  # noqa: F401
