"""Suggest changes to a recipe from its plan."""

import math

from bert_jax.planning.plan import Plan, StagePlan

_ROOMY = 0.45  # if less than this fraction of memory is in use, twice the batch may fit
_WAITING = 0.2  # if exposed communication takes more than this fraction of a step, advice is given


def advise(plan: Plan) -> list[str]:
    """Return advice as sentences, the most important first; empty if there is nothing to improve."""
    sentences: list[str] = []
    for stage in plan.stages:
        for sentence in _of_stage(plan, stage):
            if sentence not in sentences:
                sentences.append(sentence)
    return sentences


def _of_stage(plan: Plan, stage: StagePlan) -> list[str]:
    what, memory = f"{stage.batch_size:,} x {stage.length}", plan.topology.chip.hbm_gib * 2**30
    parts = plan.mesh["data"] * plan.mesh["fsdp"]
    if not stage.fits:
        ways = []
        inside = len(plan.topology.devices) // plan.topology.num_slices // plan.mesh["tensor"]
        if stage.state_bytes > 0.2 * memory and plan.mesh["fsdp"] < inside:
            ways.append(f"shard the parameters: --config.mesh.fsdp={inside}")
        if plan.remat != "full":
            ways.append(f"recompute activations: --config.remat={'dots' if plan.remat == 'none' else 'full'}")
        if stage.batch_size // plan.accumulation_steps > parts:
            ways.append(f"use micro-batches: --config.accumulation_steps={2 * plan.accumulation_steps}")
        return [f"{what} does not fit; {'; or '.join(ways)}" if ways else _hopeless(plan, stage, what)]
    assert stage.seconds is not None
    sentences = []
    if plan.remat == "none" and stage.seconds.bound_by == "memory":
        sentences.append(f"{what} is bound by memory bandwidth: --config.remat=dots moves less data")
    if stage.seconds.exposed > _WAITING * stage.seconds.step:
        smaller = "a smaller mesh.tensor, or " if plan.mesh["tensor"] > 1 else ""
        sentences.append(
            f"{what}: chips wait for communication {stage.seconds.exposed / stage.seconds.step:.0%} of the time; "
            f"{smaller}more sequences per device would hide it"
        )
    if stage.peak_bytes < _ROOMY * memory:
        if plan.accumulation_steps > 1:
            sentences.append(f"{what} leaves half of the memory free: accumulation_steps can be halved")
        elif plan.remat == "full":
            sentences.append(f"{what} leaves half of the memory free: --config.remat=dots computes less")
        else:
            sentences.append(f"{what} leaves half of the memory free: --search finds the largest batch, or take a "
                             "smaller slice")  # fmt: skip
    return sentences


def _hopeless(plan: Plan, stage: StagePlan, what: str) -> str:
    """Return advice for a stage that does not fit even with full sharding, remat and micro-batches."""
    chip = plan.topology.chip
    state, peak = (f"{size / 2**30:,.1f} of {chip.hbm_gib:g} GiB" for size in (stage.state_bytes, stage.peak_bytes))
    problem = f"{what} does not fit a slice like {plan.topology.name}"
    if stage.state_bytes > 0.9 * chip.hbm_gib * 2**30:
        times = math.ceil(stage.state_bytes / (0.5 * chip.hbm_gib * 2**30))
        return (f"{problem}: parameters and optimizer state alone take {state} on each device; it needs {times} times "
                f"the devices, with mesh.fsdp to match")  # fmt: skip
    return (f"{problem}: a single sequence takes {peak} on each device; use shorter sequences, or more devices "
            f"per sequence: --config.mesh.tensor={2 * plan.mesh['tensor']}")  # fmt: skip
