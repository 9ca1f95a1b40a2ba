"""What tests add to the commands of README and the documentation, so that each takes seconds."""

_SMALL = [
    "--config.model.hidden_size=16",
    "--config.model.intermediate_size=32",
    "--config.model.num_hidden_layers=1",
    "--config.model.num_attention_heads=2",
]
_ONE_STEP = ["--config.num_steps=1", "--config.global_batch_size=4", "--quiet"]
# Verb -> what is added to its command.
ADDED = {
    "prepare": ["--dupe-factor", "1"],
    "pretrain": [*_SMALL, "--config.stages=((1,16,4),)", "--config.optimizer.warmup_steps=0",
                 "--config.data.eval_batches=1", "--quiet"],
    "finetune": _ONE_STEP,
    "distill": _ONE_STEP,
}  # fmt: skip
