"""A processor's fastest products of matrices of BERT-base's size: `python -m benchmarks.limits jax|torch DTYPE`."""

import sys

from benchmarks import BATCH, LENGTH
from benchmarks.turns import serve

ROWS, HIDDEN, INTERMEDIATE = BATCH * LENGTH, 768, 3072


def main(library: str, dtype: str) -> None:
    """Multiply `[2048, 768] @ [768, 3072]` into float32 or, in PyTorch, into `dtype`; an item is a FLOP."""
    if library == "jax":
        import jax
        import jax.numpy as jnp

        x, kernel = jnp.ones((ROWS, HIDDEN), dtype), jnp.ones((HIDDEN, INTERMEDIATE), dtype)
        compiled = jax.jit(lambda x, kernel: jnp.matmul(x, kernel, preferred_element_type="float32"))

        def multiply() -> None:
            compiled(x, kernel).block_until_ready()
    else:
        import torch

        a, b = torch.ones(ROWS, HIDDEN, dtype=getattr(torch, dtype)), torch.ones(HIDDEN, INTERMEDIATE)
        b = b.to(a.dtype)

        def multiply() -> None:
            a @ b

    def work(units: int) -> int:
        for _ in range(units):
            multiply()
        return units * 2 * ROWS * HIDDEN * INTERMEDIATE

    serve(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
