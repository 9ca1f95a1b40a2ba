"""Run by test_sequence_to_sequence.py in a process with 8 devices: loss and gradients of a batch, whole and split."""

import json
import sys

import jax
import numpy as np

from bert_jax import parameter_sharding, sharding
from bert_jax.config import BertConfig
from bert_jax.modeling import EncoderDecoder
from bert_jax.tasks.sequence_to_sequence.task import SequenceToSequenceTask
from bert_jax.training import step as steps
from bert_jax.training.feed import device_batch

ROWS = 16
CONFIG = BertConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                    max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pooler=False,
                    initializer_range=0.2)  # fmt: skip
MODEL = EncoderDecoder(CONFIG, CONFIG.replace(hidden_size=16, num_hidden_layers=3))


def batch():
    random = np.random.default_rng(0)
    mask, real = (np.arange(size) < random.integers(2, size + 1, (ROWS, 1)) for size in (12, 9))
    draw = [random.integers(5, 40, (ROWS, size)) for size in (12, 9, 9)]
    ids, written, labels = (array.astype(np.int32) for array in draw)
    return {
        "input_ids": ids,
        "attention_mask": mask.astype(np.int32),
        "decoder_input_ids": written,
        "labels": np.where(real, labels, np.int32(-1)),
        "example_weights": np.ones(ROWS, np.float32),
    }


def gradients(devices, micro_batches, fsdp=1, tensor=1):
    task = SequenceToSequenceTask(MODEL, label_smoothing=0.1)
    mesh = sharding.make_mesh(fsdp=fsdp, tensor=tensor, devices=jax.devices()[:devices])
    with jax.set_mesh(mesh):
        where, given = jax.sharding.NamedSharding(mesh, sharding.batch_spec()), batch()
        arrays = device_batch(lambda rows: {k: v[rows] for k, v in given.items()}, ROWS, where)
        shardings = parameter_sharding.param_shardings(mesh, MODEL.abstract_params())
        params = jax.jit(MODEL.init, out_shardings=shardings)(jax.random.key(0))
        run = jax.jit(lambda p, b: steps._gradients(task, p, b, jax.random.key(0), micro_batches))
        grads, metrics = run(params, arrays)
    return jax.tree.map(np.asarray, grads), float(metrics["loss"][0])


if __name__ == "__main__":
    expected, loss = gradients(1, 1)
    ways = [(8, 1, 1), (1, 4, 1), (8, 2, 2, 2)]
    others = [gradients(*way) for way in (ways if "all" in sys.argv else ways[-1:])]
    apart = [jax.tree.map(lambda a, b: float((abs(a - b) / (abs(b) + 0.01)).max()), x, expected) for x, _ in others]
    print(json.dumps([[loss, *(other for _, other in others)], [float(np.max(jax.tree.leaves(x))) for x in apart]]))
