"""A device's fastest products of matrices: `python -m benchmarks.limits jax|torch DTYPE [ROWS INNER COLUMNS]`.

Without sizes they are those of BERT-base's feed-forward network.
"""

import statistics
import sys
from collections.abc import Sequence

from benchmarks import BATCH, LENGTH
from benchmarks.turns import Rival, serve

SIZES = (BATCH * LENGTH, 768, 3072)


def limits(dtype: str, sizes: Sequence[int] = SIZES) -> list[Rival]:
    """Return the products by JAX and by PyTorch as competitors; to be run in turns with the others."""
    return [Rival("benchmarks.limits", library, dtype, *map(str, sizes)) for library in ("jax", "torch")]


def peak_of(limits: Sequence[Rival]) -> float:
    """Return the median FLOP/s of the faster one."""
    return max(statistics.median(limit.rates) for limit in limits)


def main(library: str, dtype: str, rows: int, inner: int, columns: int) -> None:
    """Multiply `[rows, inner] @ [inner, columns]` into float32 or, in PyTorch, into `dtype`; an item is a FLOP."""
    if library == "jax":
        import jax
        import jax.numpy as jnp

        x = jax.random.normal(jax.random.key(0), (rows, inner), dtype)
        kernel = jax.random.normal(jax.random.key(1), (inner, columns), dtype)
        compiled = jax.jit(lambda x, kernel: jnp.matmul(x, kernel, preferred_element_type="float32"))

        def multiply(times: int) -> None:
            for at in range(0, times, 4):  # some at a time: each holds its product until it is done
                jax.block_until_ready([compiled(x, kernel) for _ in range(at, min(at + 4, times))])
    else:
        import torch

        from benchmarks.pytorch import DEVICE

        a, b = torch.randn(rows, inner, device=DEVICE), torch.randn(inner, columns, device=DEVICE)
        a, b = a.to(getattr(torch, dtype)), b.to(getattr(torch, dtype))

        def multiply(times: int) -> None:
            for _ in range(times):
                a @ b
            if DEVICE == "cuda":
                torch.cuda.synchronize()

    def work(units: int) -> int:
        multiply(units)
        return units * 2 * rows * inner * columns

    serve(work)


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:] or SIZES))
