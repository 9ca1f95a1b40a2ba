"""Run by a test with eight devices: loss and gradients of a model with pruned heads, split by heads; prints JSON."""

import json

import jax
import numpy as np
from pruned_models import SHAPE, random_params

from bert_jax import parameter_sharding, sharding
from bert_jax.compression import removal
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert
from bert_jax.tasks.classification.task import ClassificationTask
from bert_jax.training import step as steps

HEAD, RATES = "sequence_classification", {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
config = BertConfig(**SHAPE | RATES | {"num_attention_heads": 8, "num_hidden_layers": 2})
config, params = removal.keep_heads(config, random_params(config, HEAD), np.array([[0, 1, 4, 6], [1, 2, 5, 7]]))
task = ClassificationTask(Bert(config, HEAD), ())
random = np.random.default_rng(0)
batch = {
    "input_ids": random.integers(2, 50, (8, 16)),
    "attention_mask": np.ones((8, 16), np.int32),
    "token_type_ids": np.zeros((8, 16), np.int32),
    "labels": random.integers(0, 2, 8),
    "example_weights": np.ones(8, np.float32),
}


def gradients(devices: int, **sizes: int):
    """The loss, the gradients, and the shape of a device's share of a query matrix."""
    mesh = sharding.make_mesh(**sizes, devices=jax.devices()[:devices])
    with jax.set_mesh(mesh):
        placed = jax.device_put(params, parameter_sharding.param_shardings(mesh, params))
        rows = jax.device_put(batch, jax.sharding.NamedSharding(mesh, sharding.batch_spec()))
        run = jax.jit(lambda p, b: steps._gradients(task, p, b, jax.random.key(0), 1))
        found, metrics = run(placed, rows)
    kernel = placed["encoder"]["layers"]["attention"]["query"]["kernel"]
    return jax.tree.map(np.asarray, found), float(metrics["loss"][0]), kernel.addressable_shards[0].data.shape


if __name__ == "__main__":
    (one, loss, _), (eight, other, share) = gradients(1), gradients(8, data=1, fsdp=2, tensor=4)
    apart = jax.tree.map(lambda a, b: float((abs(a - b) / (abs(b) + 0.01)).max()), eight, one)
    print(json.dumps({"losses": [loss, other], "apart": max(jax.tree.leaves(apart)), "share": share}))
