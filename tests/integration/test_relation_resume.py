"""A run of relation extraction that is killed ends where one that was never killed does, bit for bit."""

import json
import random

from relation_rows import rows_of, write_model
from small import assert_alike, train_in_processes

from bert_jax.recipes import load_recipe


def test_killed_and_never_killed_end_alike(tmp_path):
    for name in ("train", "dev"):
        (tmp_path / f"{name}.json").write_text(json.dumps(rows_of(60, seed=len(name))))
    c = load_recipe(f"relation_extraction:{tmp_path}")
    c.init_from, c.data.max_seq_length = str(write_model(tmp_path / "encoder", "encoder")), 24
    c.global_batch_size, c.num_epochs, c.num_steps, c.optimizer.learning_rate = 16, 0.0, 12, 4e-3
    c.checkpoint_every = c.log_every = 3
    c.eval_every = 6
    at = random.SystemRandom().randrange(2, 9)  # another in every run: any must do
    for name, runs in (("whole", [{}]), ("killed", [{"kill_at": at}, {}])):
        train_in_processes(c, tmp_path / name, runs)
    assert_alike(tmp_path / "whole", tmp_path / "killed")
