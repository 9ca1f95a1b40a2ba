"""Options for XLA's compilers."""

import os

# By platform, of a training step.
# - TPU: by itself it takes products with gathered weights apart and adds up the parts in large memory, which costs more
#   than it hides: the weights are gathered beside other work all the same, and the step of BERT-large at 512 on 16 v5e
#   then moves 2.2 times fewer bytes (docs/tpu_choices.md).
# - CPU: by itself it copies parameters and moments before it updates them, although they are donated.
XLA_OPTIONS: dict[str, dict[str, bool]] = {
    "tpu": {"xla_tpu_enable_windowed_einsum_for_all_gather": False},
    "cpu": {"xla_cpu_copy_insertion_use_region_analysis": True},
}

# The TPU's runs out of stack where several matrix products are fused into one, as in BERT-base at 128 with
# rematerialisation.
_STACK = "--fibers_default_thread_stack_size"


def give_compiler_room() -> None:
    """Asks libtpu, before it is loaded, for stacks of 256 KiB, unless the user has asked for others."""
    arguments = os.environ.get("LIBTPU_INIT_ARGS", "")
    if _STACK not in arguments:
        os.environ["LIBTPU_INIT_ARGS"] = f"{arguments} {_STACK}={2**18}".strip()
