"""An ONNX file opened in onnxruntime."""

from typing import Any

from bert_jax import storage
from bert_jax.errors import InputError, one_line

ONNX_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def open_onnx_session(file: storage.PathLike, flag: str) -> Any:
    """Return an `onnxruntime.InferenceSession` of a file on a disk or in a bucket.

    Args:
        file: an ONNX model of a BERT.
        flag: the command-line flag that requires onnxruntime, for messages.

    Raises:
        InputError: onnxruntime or the file is missing, the file is damaged, or its inputs are not those of a BERT.
    """
    try:
        import onnxruntime
    except ImportError:
        raise InputError(f"{flag}: expected the package onnxruntime, found none") from None
    with storage.local_copy(storage.existing(file)) as local:
        try:
            session = onnxruntime.InferenceSession(str(local), providers=onnxruntime.get_available_providers())
        except Exception as error:  # onnxruntime's errors have no common class
            raise InputError(f"{file}: expected an ONNX model, found {one_line(str(error))}") from None
    inputs = {node.name for node in session.get_inputs()}
    if not {"input_ids", "attention_mask"} <= inputs <= {*ONNX_INPUTS}:
        raise InputError(f"{file}: expected the inputs {sorted(ONNX_INPUTS)}, found {sorted(inputs)}")
    return session
