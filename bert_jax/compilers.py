"""Options for XLA's compilers."""

import contextlib
import os

from bert_jax.process import environment

# Compiler options of a training step, by platform.
# - TPU: by default the compiler splits products with gathered weights and sums the parts in HBM. That costs more time
#   than it saves, since the gathers overlap with other work anyway. With the option off, a step of BERT-large at length
#   512 on 16 v5e chips moves 2.2 times fewer bytes (docs/tpu_choices.md).
# - CPU: by default the compiler copies parameters and moments before it updates them, although they are donated.
# - GPU: by default gradients of embeddings are summed in the order in which threads finish, so that no two runs are
#   bitwise equal (measured on an H100), and a resumed run would differ from an uninterrupted one.
XLA_OPTIONS: dict[str, dict[str, bool]] = {
    "tpu": {"xla_tpu_enable_windowed_einsum_for_all_gather": False},
    "gpu": {"xla_gpu_exclude_nondeterministic_ops": True},
    "cpu": {"xla_cpu_copy_insertion_use_region_analysis": True},
}

# The TPU compiler runs out of stack when it fuses several matrix products, as in BERT-base at length 128 with
# rematerialisation.
_STACK = "--fibers_default_thread_stack_size"


def larger_stacks() -> contextlib.AbstractContextManager[None]:
    """Set the stack size of libtpu to 256 KiB if it is loaded within the block, unless the user has set the size."""
    arguments = os.environ.get("LIBTPU_INIT_ARGS", "")
    if _STACK in arguments:
        return contextlib.nullcontext()
    return environment({"LIBTPU_INIT_ARGS": f"{arguments} {_STACK}={2**18}".strip()})
