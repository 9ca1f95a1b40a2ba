"""`OnnxBert`: a model whose forward pass runs an exported ONNX file in onnxruntime."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.inference.onnx_session import ONNX_INPUTS, open_onnx_session
from bert_jax.modeling import Bert, BertOutput, Params


@dataclasses.dataclass(frozen=True)
class OnnxBert(Bert):
    """A BERT with a head that onnxruntime runs, with the parameters in the ONNX file.

    Attributes:
        session: an `onnxruntime.InferenceSession`.
        outputs: names of the outputs to compute.
    """

    session: Any = None
    outputs: tuple[str, ...] = ()

    def apply(  # type: ignore[override]
        self,
        params: Params,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        **options: Any,
    ) -> BertOutput:
        """Run the forward pass on the host.

        Args:
            params: not read.
            input_ids: int32 `[B, S]`, or `[B, K, S]` for multiple choice; the next two have the same shape.
            attention_mask: 1 for tokens, 0 for padding; None means no padding.
            token_type_ids: segment ids; None means 0.
            options: `output_last_hidden_state`, which is not read.

        Raises:
            InputError: an input is given that an ONNX file does not have.
        """
        option_names = {name for name, value in options.items() if value is not None and value is not False}
        if others := sorted(option_names - {"output_last_hidden_state"}):
            raise InputError(f"an ONNX file: expected no inputs but tokens, mask and segments, found {others}")
        mask = jnp.ones_like(input_ids) if attention_mask is None else attention_mask
        segments = jnp.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        shapes = _outputs(Bert(self.config, self.head, self.compute), input_ids)
        outputs = jax.pure_callback(self._run, {name: shapes[name] for name in self.outputs}, input_ids, mask, segments)
        return BertOutput(**{"last_hidden_state": None} | outputs)

    def _run(self, *inputs: Any) -> dict[str, np.ndarray]:
        read = {node.name for node in self.session.get_inputs()}
        arrays = zip(ONNX_INPUTS, inputs, strict=True)
        feed = {name: np.asarray(array, np.int64) for name, array in arrays if name in read}
        outputs = self.session.run(list(self.outputs), feed)
        return {name: output.astype(np.float32) for name, output in zip(self.outputs, outputs, strict=True)}


def _outputs(bert: Bert, input_ids: jax.Array | jax.ShapeDtypeStruct) -> dict[str, jax.ShapeDtypeStruct]:
    """Return shapes and dtypes of the outputs of a model."""
    output = jax.eval_shape(bert.apply, bert.abstract_params(), input_ids)
    return {field.name: value for field in dataclasses.fields(output) if (value := output[field.name]) is not None}


def open_onnx_bert(bert: Bert, path: storage.PathLike) -> OnnxBert:
    """Return a model with the forward pass of an exported file.

    Args:
        bert: the model that was exported.
        path: the file.

    Raises:
        InputError: onnxruntime or the file is missing, or the file's outputs do not fit the model.
    """
    session = open_onnx_session(path, "--onnx")
    output_shapes = {output.name: output.shape for output in session.get_outputs()}
    sizes = (2, 3, 4) if bert.head == "multiple_choice" else (2, 4)
    expected = _outputs(bert, jax.ShapeDtypeStruct(sizes, jnp.int32))
    names = tuple(name for name in expected if name not in ("last_hidden_state", "pooler_output"))  # the head's outputs
    for name in names:
        axes, shape = output_shapes.get(name, []), expected[name].shape
        if len(axes) != len(shape) or any(isinstance(n, int) and n != m for n, m in zip(axes, shape, strict=True)):
            raise InputError(f"{path}: expected an output {name} {shape} for tokens {sizes}, found {output_shapes}")
    if bert.config.pooling_skip:
        raise InputError(f"{path}: expected no prompt, as an ONNX file cannot leave it out of the pooling")
    return OnnxBert(bert.config, bert.head, bert.compute, session, names)
