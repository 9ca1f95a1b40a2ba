"""Activations that files name as classes of torch.nn."""

from typing import Any

from bert_jax.errors import InputError

# Class of torch.nn -> our name of the activation.
TORCH_ACTIVATIONS = {
    "Identity": "identity", "Tanh": "tanh", "Sigmoid": "sigmoid", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu",
    "ELU": "elu", "LeakyReLU": "leaky_relu", "Softplus": "softplus", "Mish": "mish", "Softmax": "softmax",
}  # fmt: skip


def read_activation(path: Any, where: object, *more: str) -> str:
    """Return our name of an activation that a file names as a class of torch.nn.

    Args:
        path: the name in the file, such as `torch.nn.modules.activation.Tanh`.
        where: the file, for messages.
        more: activations that are allowed besides `LAYER_ACTIVATIONS`.

    Raises:
        InputError: the activation is not known or not allowed.
    """
    name = path.rsplit(".", 1)[-1] if isinstance(path, str) and path.startswith("torch.") else ""
    activation = TORCH_ACTIVATIONS.get(name, "")
    if not activation or (activation == "softmax" and "softmax" not in more):
        known = ", ".join(name for name in TORCH_ACTIVATIONS if name != "Softmax" or more)
        raise InputError(f"{where}: activation: expected a class of torch.nn ({known}), found {path!r}")
    return activation
