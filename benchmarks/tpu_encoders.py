"""A step of masked-LM training of encoders of each family on a TPU slice, at their published sizes.

The steps are compiled by the TPU compiler, not run. Batches have 131,072 tokens; parameters are sharded over the slice.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax

from bert_jax import recipes
from bert_jax.config import BertConfig
from bert_jax.planning.plan import StagePlan, plan
from bert_jax.planning.slices import find_slice

# Encoder -> tokens per sequence.
ENCODERS = {
    "google-bert/bert-base-uncased": 512,
    "microsoft/deberta-v3-base": 512,
    "albert/albert-xxlarge-v2": 512,
    "EuroBERT/EuroBERT-210m": 512,
    "NeoBERT": 512,
    "RoFormer": 512,
    "google/mobilebert-uncased": 512,
    "facebook/esm2_t33_650M_UR50D": 1024,
    "Alibaba-NLP/gte-multilingual-base": 512,
    "nomic-ai/nomic-embed-text-v2-moe": 512,
    "answerdotai/ModernBERT-base": 4096,
    "google/bigbird-roberta-base": 4096,
    "allenai/longformer-base-4096": 4096,
}
_TOKENS = 131_072
_HUB = Path(__file__).parents[1] / "tests" / "conversion" / "hub_encoders.json"
# Encoders that are not in the table of the hub: the sizes of Breton et al. 2025 (arXiv:2502.19587), table 1, and of
# Su et al. 2021 (arXiv:2104.09864), section 4.
_OTHERS = {
    "NeoBERT": {"model_type": "neobert", "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 28,
                "num_attention_heads": 12, "intermediate_size": 3072, "max_length": 4096},
    "RoFormer": {"model_type": "roformer", "vocab_size": 50000, "hidden_size": 768, "embedding_size": 768,
                 "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
                 "max_position_embeddings": 1536, "rotary_value": False},
}  # fmt: skip


def architecture(encoder: str) -> BertConfig:
    """Return the architecture of an encoder by its published configuration."""
    hub = json.loads(_HUB.read_text(encoding="utf-8"))
    if encoder in _OTHERS:
        return BertConfig.from_hf(_OTHERS[encoder], encoder)
    entry = hub["encoders"][encoder]
    return BertConfig.from_hf(hub["bases"][entry["base"]] | entry["differs"], encoder)


def measured(topology: str, encoders: Sequence[str]) -> Iterator[tuple[str, StagePlan]]:
    """Yield each encoder and the plan of its step."""
    for encoder in encoders:
        recipe = recipes.pretraining()
        config = architecture(encoder)
        usual = BertConfig.named(recipe.model.size, family=config.family)
        recipe.model.family, recipe.model.vocab_size = config.family, config.vocab_size
        for name, value in dataclasses.asdict(config).items():
            if name in recipe.model and value != getattr(usual, name):
                recipe.model[name] = value
        recipe.stages = ((1000, ENCODERS[encoder], _TOKENS // ENCODERS[encoder]),)
        recipe.mesh.data, recipe.mesh.fsdp = 1, -1
        recipe.optimizer.warmup_steps = 10
        yield encoder, plan(recipe, find_slice(topology)).stages[0]


def main(topology: str, encoders: Sequence[str]) -> None:
    """Print a table in Markdown."""
    jax.config.update("jax_platforms", "cpu")
    print(f"{_TOKENS:,} tokens in a step on {topology}\n")
    print("| encoder | tokens a sequence | peak GiB | HBM GB a step | roofline ms | MFU |\n|---|---|---|---|---|---|")
    for encoder, stage in measured(topology, encoders):
        step = f"{stage.seconds.step * 1e3:.0f}" if stage.seconds else "does not fit"
        print(f"| {encoder} | {ENCODERS[encoder]} | {stage.peak_bytes / 2**30:.1f} | {stage.hbm_bytes / 1e9:.0f} | "
              f"{step} | {stage.mfu:.0%} |", flush=True)  # fmt: skip
