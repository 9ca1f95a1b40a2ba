"""What the TPU compiler makes of the attention kernels and of the masked-LM loss."""

import functools
import importlib.util

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding

from bert_jax import jobs, recipes, sharding
from bert_jax.config import BertConfig
from bert_jax.families.deberta.modules import attend_disentangled
from bert_jax.modeling import Compute, losses
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import plan_attention
from bert_jax.modeling.backends import attend, split_heads
from bert_jax.planning.hlo import HloModule
from bert_jax.planning.plan import for_tpu
from bert_jax.planning.slices import find_slice
from bert_jax.training import step as steps
from bert_jax.training.program import make_program

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the TPU compiler: pip install 'bert-jax[tpu]'"
)
pytestmark = [needs_compiler, pytest.mark.usefixtures("compiled_quickly")]
SMALL = {"v4": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2", "tpu7x": "tpu7x:2x2x1"}
SLOW = pytest.mark.slow


def compile_attention(way, length, slice_name, rate=0.0, window=None, head_size=64, dtype="bfloat16"):
    """The program of a kernel and its gradient, with segment ids."""
    config = BertConfig.named(
        "tiny", hidden_size=256, num_attention_heads=256 // head_size, attention_probs_dropout_prob=rate
    )
    compute = Compute(dtype, attention=way, platform="tpu")
    where = SingleDeviceSharding(find_slice(slice_name).devices[0])
    x = jax.ShapeDtypeStruct((2, length, 256), jnp.dtype(dtype), sharding=where)
    ids = jax.ShapeDtypeStruct((2, length), jnp.int32, sharding=where)

    def run(q, k, v, up, ids):
        plan = plan_attention(AttentionMask(ids, ids, window), config, compute, length, drops=rate > 0, maps=False)
        key = jax.random.key(0) if rate else None
        out, pull = jax.vjp(lambda *qkv: attend(plan, split_heads(qkv, config), config, key, compute)[0], q, k, v)
        return out, *pull(up)

    return HloModule(jax.jit(run).lower(x, x, x, x, ids).compile().as_text())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "length", [128, 384, 1024, 8192, *(pytest.param(length, marks=SLOW) for length in (256, 512, 2048, 4096))]
)
def test_splash_compiles_forward_and_backward_with_segments(length):
    kernels = compile_attention("splash", length, "v5e:2x2")
    assert count_kernels(kernels) == 3  # forward, by queries, by keys and values


def test_splash_compiles_with_a_window():
    assert count_kernels(compile_attention("splash", 1024, "v5e:2x2", window=64)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("length", [pytest.param(128, marks=SLOW), 512, 2048])
@pytest.mark.parametrize("chip", ["v5e", *(pytest.param(chip, marks=SLOW) for chip in SMALL if chip != "v5e")])
def test_fused_compiles_forward_and_backward_with_segments_and_dropout(length, chip):
    assert count_kernels(compile_attention("fused", length, SMALL[chip], rate=0.1)) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "length"), [("bfloat16", 2048), pytest.param("float32", 1024, marks=SLOW)])
@pytest.mark.parametrize("head_size", [32, pytest.param(64, marks=SLOW), pytest.param(128, marks=SLOW)])
def test_fused_fits_the_smallest_chip_at_its_longest(head_size, dtype, length):
    kernels = compile_attention("fused", length, SMALL["v4"], rate=0.1, head_size=head_size, dtype=dtype)
    assert count_kernels(kernels) == 2


@pytest.mark.parametrize(
    ("chip", "length", "dtype"),
    [
        ("v5e", 512, "bfloat16"),
        *(pytest.param(chip, 512, "bfloat16", marks=SLOW) for chip in SMALL if chip != "v5e"),
        pytest.param("v4", 512, "float32", marks=SLOW),
        pytest.param("v5e", 2048, "bfloat16", marks=SLOW),
        pytest.param("v5e", 1024, "float32", marks=SLOW),
    ],
)
def test_fused_disentangled_compiles_forward_and_backward(chip, length, dtype):
    config = BertConfig.named(
        "tiny", "deberta-v2", hidden_size=256, num_attention_heads=4, max_position_embeddings=2048
    )
    compute, devices = Compute(dtype, attention="fused", platform="tpu"), find_slice(SMALL[chip]).devices[:1]
    with jax.set_mesh(sharding.make_mesh(devices=devices)):
        x, ids = (jax.ShapeDtypeStruct((2, length, *size), kind) for size, kind in (((256,), dtype), ((), jnp.int32)))
        rows = config.attention.num_relative_embeddings(config.max_position_embeddings)
        table = jax.ShapeDtypeStruct((rows, 4, 64), dtype)

        def run(projected, tables, up, ids):
            plan = plan_attention(AttentionMask(ids, ids), config, compute, length, drops=True, maps=False)
            attended = functools.partial(attend_disentangled, plan)
            more = {"config": config, "dropout_key": jax.random.key(0), "compute": compute}
            out, pull = jax.vjp(lambda p, t: attended(p, **more, positions=t)[0], projected, tables)
            return out, pull(up)

        module = HloModule(jax.jit(run).lower((x, x, x), (table, table), x, ids).compile().as_text())
    assert count_kernels(module) == 2


def count_kernels(module):
    instructions = [i for instructions, _ in module.scheduled() for i in instructions]
    return sum('custom_call_target="tpu_custom_call"' in i.rest for i in instructions)


def largest_logits(monkeypatch, parts=None):
    """Elements of a device's largest float32 array with an axis of the vocabulary, in the gradient of a small BERT."""
    recipe = recipes.pretraining()
    recipe.model.size, recipe.stages = "tiny", ((90, 128, 64),)
    recipe.optimizer.warmup_steps = 10
    recipe = recipes.resolve(recipe, platform="tpu")
    mesh = find_slice("v5e:2x2").mesh(recipe)
    abstract_task = for_tpu(jobs.abstract_task(recipe))
    if parts:
        monkeypatch.setattr(losses, "number_of_parts", lambda *_: parts)
    with jax.set_mesh(mesh):
        program = make_program(recipe, abstract_task.task, abstract_task.init_params, 90, mesh)
        split = jax.sharding.NamedSharding(mesh, sharding.batch_spec())
        batch = {
            k: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=split) for k, v in abstract_task.stages[0].batch.items()
        }
        gradient = jax.jit(
            lambda params, batch: steps._gradients(abstract_task.task, params, batch, jax.random.key(0), 1)[0]
        )
        text = gradient.lower(program.like.params, batch).compile().as_text()
    arrays = (a for found, _ in HloModule(text).scheduled() for i in found for a in i.arrays if a.dtype == "f32")
    return max(a.num_bytes // 4 for a in arrays if 30522 in a.shape)


@pytest.mark.slow
def test_the_loss_never_holds_the_logits_of_all_tokens(monkeypatch):
    tokens, vocabulary = 16 * 20, 30522  # of a device
    assert largest_logits(monkeypatch) <= tokens * vocabulary / 2
    assert largest_logits(monkeypatch, parts=1) == tokens * vocabulary
