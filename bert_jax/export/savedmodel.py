"""A model as a TensorFlow SavedModel, whose function is the StableHLO program of `jax.experimental.jax2tf`."""

import functools
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.export.signature import Runner, SourceModel, signature_of
from bert_jax.export.stablehlo import PLATFORMS, flat_forward, flat_weights, without_locations
from bert_jax.extras import import_extra
from bert_jax.modeling import Bert, Compute
from bert_jax.modeling.layers import erf_by_arithmetic

SIGNATURE = "serving_default"
FOLDER_OF_DTYPE = {"float32": "saved_model"}
_EXTRA = "savedmodel"


def write_savedmodel(directory: storage.Path, source: SourceModel, dtypes: tuple[str, ...]) -> None:
    """Write a SavedModel into a local directory, for any batch size and any length up to the model's positions.

    Raises:
        InputError: TensorFlow is not installed.
    """
    tensorflow, jax2tf = import_extra("tensorflow", _EXTRA), import_extra("jax.experimental.jax2tf", _EXTRA)
    bert = Bert(source.config, source.head, Compute(attention="xla", platform="cpu"))
    signature = signature_of(source.config, source.head)
    axes = {name: ", ".join(names) for name, names in signature.inputs.items()}
    with without_locations(), erf_by_arithmetic():  # TensorFlow 2.21 cannot read the erf of JAX 0.10
        run = jax2tf.convert(
            functools.partial(flat_forward, bert),
            polymorphic_shapes=[None, *axes.values()],
            polymorphic_constraints=(f"sequence_length <= {source.config.max_position_embeddings}",),
            native_serialization_platforms=PLATFORMS,
            with_gradient=False,
        )
        module: Any = tensorflow.Module()
        module.weights = {
            name.replace("/", "."): tensorflow.Variable(value, trainable=False)
            for name, value in flat_weights(source.params).items()
        }

        def call(**inputs: Any) -> dict[str, Any]:
            weights = {name.replace(".", "/"): value for name, value in module.weights.items()}
            return run(weights, *(inputs[name] for name in axes))

        specs = {
            name: tensorflow.TensorSpec([None] * len(names), tensorflow.int32, name=name)
            for name, names in signature.inputs.items()
        }
        module.call = tensorflow.function(call, autograph=False)
        concrete = module.call.get_concrete_function(**specs)
        for dtype in dtypes:
            target = str(directory / FOLDER_OF_DTYPE[dtype])
            tensorflow.saved_model.save(module, target, signatures={SIGNATURE: concrete})


def open_savedmodel(directory: storage.Path, dtype: str) -> Runner:
    """Open a SavedModel in TensorFlow, as a function of int32 inputs."""
    tensorflow = import_extra("tensorflow", _EXTRA)
    module = tensorflow.saved_model.load(str(directory / FOLDER_OF_DTYPE[dtype]))
    function = module.signatures[SIGNATURE]

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = function(**{name: tensorflow.constant(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    return run
