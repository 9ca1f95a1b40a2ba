"""What each pretraining recipe becomes on its slices: run by itself, writes goldens.json for test_goldens.py.

python tests/planning/goldens.py
"""

import collections
import importlib.metadata
import json
import sys
from pathlib import Path

import jax

from bert_jax import recipes
from bert_jax.planning.plan import Plan, plan
from bert_jax.planning.slices import find_slice

FILE = Path(__file__).with_name("goldens.json")
CONFIGS = Path(__file__).parents[2] / "configs"

# Recipe, slice, and what must be changed for it to fit there.
MANY_CHIPS = ("stages=((900000, 128, 4096), (100000, 512, 4096))", "mesh.data=-1", "mesh.fsdp=16")
CASES = {
    f"{recipe} {slice_name}": (recipe, slice_name, changes)
    for recipe, slice_name, changes in (
        ("bert_base", "v5e:2x2", ()),
        ("bert_base", "v5e:4x4", ()),
        ("bert_base", "v5p:2x2x1", ()),
        ("bert_base", "v6e:2x2", ()),
        ("bert_large", "v5e:2x2", ("accumulation_steps=4",)),
        ("bert_large", "v5e:4x4", ()),
        ("bert_large", "v5p:2x2x1", ()),
        ("bert_large", "v6e:2x2", ()),
        ("bert_large", "v5e:16x16", MANY_CHIPS),
        ("bert_large", "v5p:8x8x16", MANY_CHIPS),
        ("demo", "v5e:2x2", ()),
        ("mini_20_minutes", "v5e:2x2", ()),
        ("lamb_4096", "v5e:2x2", ()),
        ("roberta_base", "v5e:16x16", ()),
        ("electra_small", "v5e:2x2", ()),
        ("diffusion_base", "v5e:4x4", ()),
        ("modernbert_base", "v5e:16x16", ()),
        ("deberta_v3_small", "v5e:16x16", ()),
    )
}
QUICK = ("demo v5e:2x2",)  # the others take minutes: make test-tpu


def versions() -> dict[str, str]:
    """Of what decides how a program is compiled."""
    return {package: importlib.metadata.version(package) for package in ("jax", "libtpu")}


def compiled(case: str) -> Plan:
    """The plan of a case."""
    recipe, slice_name, changes = CASES[case]
    return plan(
        recipes.load_recipe(str(CONFIGS / f"{recipe}.py"), [*changes, "data.prepared="]), find_slice(slice_name)
    )


def golden(made: Plan) -> dict:
    """What a plan is held to."""
    stages = {}
    for stage in made.stages:
        counts = collections.Counter(
            f"{c.kind} over {'+'.join(c.axes)}, {'hidden' if c.hidden else 'exposed'}" for c in stage.collectives
            if c.devices > 1
        )  # fmt: skip
        stages[f"{stage.batch_size} x {stage.length}"] = {
            "peak_gib": round(stage.peak_bytes / 2**30, 2),
            "mfu": round(stage.mfu, 3),
            "collectives": dict(sorted(counts.items())),
        }
    return {"mesh": made.mesh, "shardings": made.shardings, "stages": stages}


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    goldens = {"versions": versions(), "cases": {}}
    for name in CASES:
        print(name, file=sys.stderr, flush=True)
        goldens["cases"][name] = golden(compiled(name))
        FILE.write_text(json.dumps(goldens, indent=1) + "\n")
