"""Options for XLA's compilers."""

import contextlib
import os

from bert_jax.process import environment

# Compiler options of a training step, by platform.
# - TPU: by default the compiler splits products with gathered weights and sums the parts in HBM. That costs more than
#   it hides, since the gathers overlap with other work anyway. Without it, the step of BERT-large at 512 on 16 v5e
#   moves 2.2 times fewer bytes (docs/tpu_choices.md).
# - CPU: by default the compiler copies parameters and moments before it updates them, although they are donated.
# - GPU: by default sums of gradients of embeddings are added up in the order in which threads come, so that no two runs
#   end in the same bits (measured on an H100), and a resumed run would not be the run that was not interrupted.
XLA_OPTIONS: dict[str, dict[str, bool]] = {
    "tpu": {"xla_tpu_enable_windowed_einsum_for_all_gather": False},
    "gpu": {"xla_gpu_exclude_nondeterministic_ops": True},
    "cpu": {"xla_cpu_copy_insertion_use_region_analysis": True},
}

# The TPU compiler runs out of stack when it fuses several matrix products, as in BERT-base at 128 with
# rematerialisation.
_STACK = "--fibers_default_thread_stack_size"


def larger_stacks() -> contextlib.AbstractContextManager[None]:
    """Have libtpu make stacks of 256 KiB, if it is loaded in the block, unless the user has asked for others."""
    arguments = os.environ.get("LIBTPU_INIT_ARGS", "")
    if _STACK in arguments:
        return contextlib.nullcontext()
    return environment({"LIBTPU_INIT_ARGS": f"{arguments} {_STACK}={2**18}".strip()})
