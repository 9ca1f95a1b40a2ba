"""Learning rate as a function of the step, counted from 0."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from bert_jax.errors import InputError, did_you_mean

Schedule = Callable[[jax.typing.ArrayLike], jax.Array]


def bert_linear(peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """The original's (google-research/bert, `optimization.py`): decay runs from step 0 and warm-up overrides it.

    `peak * (1 - step/num_steps)`, but `peak * step/warmup_steps` before `warmup_steps`: at the end of warm-up the
    rate drops from `peak` to `peak * (1 - warmup_steps/num_steps)`.
    """
    decay = optax.linear_schedule(peak, 0.0, num_steps)
    warmup = optax.linear_schedule(0.0, peak, max(1, warmup_steps))
    return lambda step: jnp.where(jnp.asarray(step) < warmup_steps, warmup(step), decay(step))


def linear(peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Up to `peak` over `warmup_steps`, then down to 0 over the `num_steps - warmup_steps` that remain (as in HF)."""
    decay = optax.linear_schedule(peak, 0.0, max(1, num_steps - warmup_steps))
    return _after_warmup(peak, warmup_steps, decay)


def constant(peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Up to `peak` over `warmup_steps`, then `peak`."""
    return _after_warmup(peak, warmup_steps, optax.constant_schedule(peak))


def _after_warmup(peak: float, warmup_steps: int, schedule: Schedule) -> Schedule:
    warmup = optax.linear_schedule(0.0, peak, max(1, warmup_steps))
    return optax.join_schedules([warmup, schedule], [warmup_steps])


SCHEDULES = {"bert_linear": bert_linear, "linear": linear, "constant": constant}


def make_schedule(name: str, peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Returns the schedule of a name in SCHEDULES. Raises InputError for an unknown name or more warm-up than steps."""
    if name not in SCHEDULES:
        raise InputError(f"schedule {name!r} is not known{did_you_mean(name, SCHEDULES)}")
    if warmup_steps > num_steps:
        raise InputError(f"config.optimizer.warmup_steps: expected at most num_steps {num_steps}, found {warmup_steps}")
    return SCHEDULES[name](peak, num_steps, warmup_steps)
