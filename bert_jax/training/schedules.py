"""Learning rate schedules: functions of the step, counted from 0."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from bert_jax.errors import InputError, did_you_mean
from bert_jax.recipes.optimization import SCHEDULES

Schedule = Callable[[jax.typing.ArrayLike], jax.Array]

_WSD_DECAY = 10  # the decay takes 1 / 10 of the steps


def bert_linear(peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Linear decay to 0 from step 0, overridden by warm-up, as in google-research/bert.

    `peak * (1 - step/num_steps)`, but `peak * step/warmup_steps` before `warmup_steps`: at the end of warm-up the
    rate drops from `peak` to `peak * (1 - warmup_steps/num_steps)`.
    """
    decay = optax.linear_schedule(peak, 0.0, num_steps)
    warmup = optax.linear_schedule(0.0, peak, max(1, warmup_steps))
    return lambda step: jnp.where(jnp.asarray(step) < warmup_steps, warmup(step), decay(step))


def linear(peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Linear warm-up, then linear decay to 0, as in transformers."""
    return _after_warmup(peak, warmup_steps, optax.linear_schedule(peak, 0.0, _after(num_steps, warmup_steps)))


def constant(peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Linear warm-up, then a constant rate."""
    return _after_warmup(peak, warmup_steps, optax.constant_schedule(peak))


def quadratic(peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Linear warm-up, then decay to 0 as the square of the share of remaining steps."""
    return _after_warmup(peak, warmup_steps, optax.polynomial_schedule(peak, 0.0, 2, _after(num_steps, warmup_steps)))


def cosine(peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Linear warm-up, then cosine decay to 0 (Loshchilov and Hutter 2017, arXiv:1608.03983)."""
    return _after_warmup(peak, warmup_steps, optax.cosine_decay_schedule(peak, _after(num_steps, warmup_steps)))


def rsqrt(peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Linear warm-up, then `peak * sqrt(warmup_steps / step)` (Vaswani et al. 2017, section 5.3)."""
    start = max(1, warmup_steps)
    return _after_warmup(peak, warmup_steps, lambda step: peak * jnp.sqrt(start / (start + jnp.asarray(step))))


def wsd(peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Linear warm-up, then a constant rate, and `1 - sqrt` decay to 0 in the last tenth of the steps.

    A checkpoint from before the decay can be trained further (Hu et al. 2024, arXiv:2404.06395); the form of the decay
    is that of Haegele et al. 2024 (arXiv:2405.18392).
    """
    decays = max(1, min(num_steps // _WSD_DECAY, num_steps - warmup_steps))
    flat = num_steps - warmup_steps - decays

    def after(step: jax.typing.ArrayLike) -> jax.Array:
        return peak * (1 - jnp.sqrt(jnp.clip((jnp.asarray(step) - flat) / decays, 0, 1)))

    return _after_warmup(peak, warmup_steps, after)


def _after_warmup(peak: float, warmup_steps: int, schedule: Schedule) -> Schedule:
    warmup = optax.linear_schedule(0.0, peak, max(1, warmup_steps))
    joined: Schedule = optax.join_schedules([warmup, schedule], [warmup_steps])
    return joined


def _after(num_steps: int, warmup_steps: int) -> int:
    return max(1, num_steps - warmup_steps)


def make_schedule(name: str, peak: float, num_steps: int, warmup_steps: int) -> Schedule:
    """Return a schedule of `SCHEDULES`. Raises InputError for an unknown name or more warm-up than steps."""
    if name not in SCHEDULES:
        raise InputError(f"schedule {name!r} is not known{did_you_mean(name, SCHEDULES)}")
    if warmup_steps > num_steps:
        raise InputError(f"config.optimizer.warmup_steps: expected at most num_steps {num_steps}, found {warmup_steps}")
    return SCHEDULES[name](peak, num_steps, warmup_steps)
