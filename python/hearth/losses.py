"""Losses: functions of predictions and targets that training minimises, computed in float32 or better."""

from . import _functions

globals().update(_functions.losses)
__all__ = list(_functions.losses)
