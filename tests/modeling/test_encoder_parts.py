"""The places of the encoder that families fill: which kinds a config chooses, and that BERT imports none of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES
from bert_jax.lazy import import_object
from bert_jax.modeling.registry import attention_of, beside_of, feed_forward_of

MOST_LINES_OF_THE_CORE = 3_550  # of `modeling/` and `config/` that a BERT imports; the goal is 2,000
OF_FAMILIES = {
    "albert": ("SelfAttention", "FeedForward", "EncoderLayer", "Tied", ()),
    "bert": ("SelfAttention", "FeedForward", "EncoderLayer", "Stack", ()),
    "big_bird": ("BlockSparseAttention", "FeedForward", "EncoderLayer", "Stack", ("RandomBlocks",)),
    "deberta": ("DisentangledAttention", "FeedForward", "EncoderLayer", "Stack", ("Disentangled",)),
    "deberta-v2": ("DisentangledAttention", "FeedForward", "EncoderLayer", "Stack", ("Disentangled",)),
    "electra": ("SelfAttention", "FeedForward", "EncoderLayer", "Stack", ()),
    "jina-bert": ("AlibiAttention", "GatedFeedForward", "EncoderLayer", "Stack", ()),
    "longformer": ("GlobalAttention", "FeedForward", "EncoderLayer", "Stack", ()),
    "mobilebert": ("SelfAttention", "FeedForward", "BottleneckLayer", "Stack", ()),
    "modernbert": ("RotaryAttention", "GatedFeedForward", "EncoderLayer", "Stack", ("Rotating",)),
    "mpnet": ("SelfAttention", "FeedForward", "EncoderLayer", "Stack", ("DistanceBias",)),
    "nomic-moe": ("RotaryAttention", "FeedForward", "EncoderLayer", "ExpertsInTurn", ("Rotating",)),
    "roberta": ("SelfAttention", "FeedForward", "EncoderLayer", "Stack", ()),
}


@pytest.mark.parametrize("family", OF_FAMILIES)
def test_the_parts_of_a_family(family):
    config = BertConfig.named("base", family)
    kinds = (
        attention_of(config),
        feed_forward_of(config),
        import_object(config.layer.builds()),
        import_object(config.stack.builds()),
    )
    beside = tuple(type(part).__name__ for part in beside_of(config))
    assert (*(kind.__name__ for kind in kinds), beside) == OF_FAMILIES[family]


def test_a_convolution_is_beside_the_first_layer():
    config = BertConfig.named("base", "deberta-v2", conv_kernel_size=3)
    assert [type(part).__name__ for part in beside_of(config)] == ["Disentangled", "Convolving"]


def test_attention_is_of_one_kind():
    with pytest.raises(InputError, match=r"expected none with pos_att_type, found both"):
        BertConfig.named("base", "deberta-v2", position_embedding_type="alibi")


def test_bert_imports_no_part_of_other_families():
    lines = """
import sys
import jax
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert

bert = Bert(BertConfig.named("tiny"), "pretraining")
jax.eval_shape(lambda key: bert.apply(bert.init(key), jax.numpy.ones((2, 8), int)), jax.random.key(0))
usual = [f"bert_jax.families.{name}" for name in ("base", "bert", "names")]
parts = [f"bert_jax.modeling.{name}" for name in ("alibi", "factored_embeddings", "gated", "rotary")]
print([name for name in sys.modules if name in parts or name.startswith("bert_jax.families.") and name not in usual])
"""
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_the_core_names_no_family():
    """`modeling/` and `config/`, as far as a BERT imports them; ELECTRA is a class of the public interface."""
    lines = """
import sys
import jax
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert

bert = Bert(BertConfig.named("tiny"), "pretraining")
jax.eval_shape(lambda key: bert.apply(bert.init(key), jax.numpy.ones((2, 8), int)), jax.random.key(0))
parts = ("bert_jax.config", "bert_jax.modeling")
core = [module.__file__ for name, module in sys.modules.items() if name.startswith(parts)]
print(*core, sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    core = [Path(line) for line in done.stdout.split()]
    names = "|".join(name.replace("-", "[-_ ]?").replace("_", "[-_ ]?") for name in FAMILIES if name != "bert")
    named = {}
    for path in core:
        if found := re.findall(rf"(?i)(?<![a-z])({names})(?![a-z])", path.read_text()):
            named[path.name] = {word.lower() for word in found}
    assert named == {"__init__.py": {"electra"}}
    assert sum(len(path.read_text().splitlines()) for path in core) <= MOST_LINES_OF_THE_CORE
