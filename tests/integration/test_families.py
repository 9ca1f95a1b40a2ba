"""Every family through the loop: pretrained for a few steps, written, read by both libraries, and fine-tuned."""

import functools
import json

import numpy as np
import pytest
from small import recipe, train_all

from bert_jax import families, from_pretrained
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError
from bert_jax.jobs import build
from bert_jax.recipes import resolve

# What a model of the family needs besides a tiny size, to be as tiny.
FAMILIES = {
    "roberta": {"type_vocab_size": 1},
    "modernbert": {"local_window": 4, "global_every": 2},
    "distilbert": {},
    "mpnet": {},
    "nomic_bert": {},
    "megatron-bert": {},
    "albert": {"num_hidden_groups": 1},
    "mobilebert": {"embedding_size": 8, "intra_bottleneck_size": 8, "num_feedforward_networks": 2},
    "ernie": {"task_type_vocab_size": 2},
    "xlm-roberta-xl": {"type_vocab_size": 1},
    "deberta": {},
    "gte": {},
    "jina-bert": {},
    "jina_embeddings_v3": {},
    "nomic-moe": {"num_hidden_layers": 2},
    "jina-bert-qk": {},
    "deberta-v2": {"position_buckets": 8, "conv_kernel_size": 3},
    "esm": {},
    "neobert": {},
    "roformer": {},
    "eurobert": {"num_key_value_heads": 1},
    "longformer": {"type_vocab_size": 1, "attention_windows": (2, 4)},
    "big_bird": {"block_size": 4, "num_random_blocks": 1},
}
STEPS = 10
QUICK = ("modernbert",)  # the one that is least like BERT
# Those that transformers has a class for.
IN_TRANSFORMERS = [family for family in FAMILIES if not families.FAMILIES[family].model_type]
ALL = [pytest.param(family, marks=[] if family in QUICK else [pytest.mark.slow]) for family in FAMILIES]


@pytest.fixture(scope="module")
def rows(tmp_path_factory, data, tiny_tokenizer):
    """Full rows of the corpus, without pairs."""
    root = tmp_path_factory.mktemp("rows")
    prepare(str(data / "corpus.txt"), tiny_tokenizer, root / "prepared", objective="mlm", max_seq_length=32,
            dupe_factor=1, validation_fraction=0.0, num_workers=1)  # fmt: skip
    return root / "prepared"


def pretraining(data, rows, family):
    c = recipe(data, "pretraining", **{"data.prepared": str(rows), "best_metric": "", "stages": (), "num_steps": STEPS,
                                       "data.sequence_length": 32, "global_batch_size": 16, "log_every": 2,
                                       "checkpoint_every": 0, "layers": "scan", "model.family": family})  # fmt: skip
    c.model.update(FAMILIES[family])
    return c


def finetuning(data, model):
    c = recipe(data, "classification", init_from=str(model), num_steps=STEPS, log_every=2, checkpoint_every=0,
               eval_every=0, accumulation_steps=1, layers="scan", tokenizer="")  # fmt: skip
    c.model.update(dict.fromkeys(("hidden_size", "intermediate_size", "max_position_embeddings")))
    c.data.dev, c.data.length_buckets = "", (16,)
    return c


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data, rows):
    """Returns a function: the directory in which, of a family, NAME is the run of pretraining and NAME-tuned that of
    fine-tuning."""

    @functools.cache
    def runs(families):
        root, made = tmp_path_factory.mktemp("runs"), {}
        for family in families:
            made[root / family] = pretraining(data, rows, family)
            made[root / f"{family}-tuned"] = finetuning(data, root / family / "model")
        train_all(made)
        return root

    return lambda family: runs(QUICK if family in QUICK else tuple(f for f in FAMILIES if f not in QUICK))


def losses(workdir):
    lines = (json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines())
    return [line["train/loss"] for line in lines if "train/loss" in line]


@pytest.mark.slow
@pytest.mark.parametrize("family", ALL)
def test_it_learns_and_is_fine_tuned(trained, family):
    runs = trained(family)
    pretrained, tuned = losses(runs / family), losses(runs / f"{family}-tuned")
    assert len(pretrained) == len(tuned) == STEPS // 2
    assert pretrained[-1] < pretrained[0] - 0.3
    assert np.isfinite(tuned).all() and min(tuned[1:]) < tuned[0]
    model = from_pretrained(runs / f"{family}-tuned" / "model")
    assert (model.config.family, model.head, model.missing) == (family, "sequence_classification", ())


@pytest.mark.slow
@pytest.mark.parametrize("family", [case for case in ALL if case.values[0] in IN_TRANSFORMERS])
def test_what_it_wrote_is_read_alike_by_both_libraries(trained, family):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    transformers = pytest.importorskip("transformers", reason="the oracle; installed on Python 3.11 only")
    if family == "neobert":
        pytest.skip("transformers does not have it")
    directory = trained(family) / family / "model"
    ours = from_pretrained(directory)
    assert (ours.config.family, ours.head, ours.missing) == (family, "masked_lm", ())
    theirs, info = transformers.AutoModelForMaskedLM.from_pretrained(directory, output_loading_info=True)
    assert not any(info.values()), info
    ids = np.random.default_rng(0).integers(5, ours.config.vocab_size, (3, 20))
    with torch.no_grad():
        expected = theirs.eval()(torch.tensor(ids)).logits.numpy()
    found = np.asarray(ours(input_ids=ids).logits)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


def test_pairs_are_refused_by_a_family_that_has_no_head_for_them(data):
    c = recipe(data, "pretraining", **{"model.family": "roberta", "model.type_vocab_size": 1})
    with pytest.raises(
        InputError, match=r"config\.model\.family: expected a family with head 'pretraining', found 'rob"
    ):
        build(resolve(c))


def test_padding_has_no_position_whatever_its_id(data, rows):
    config = build(resolve(pretraining(data, rows, "roberta"))).task.model.config
    assert (config.pad_token_id, config.positions.position_offset, config.max_position_embeddings) == (0, 1, 32)
