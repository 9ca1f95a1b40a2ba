"""Model FLOPs counted by hand, and peaks by chip."""

import types

import jax
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.config.layers import StackConfig
from bert_jax.modeling import Bert, Compute, Electra
from bert_jax.modeling.electra import generator_config
from bert_jax.training.flops import step_flops, train_flops
from bert_jax.training.peaks import peak_flops


def test_bert_base_pretraining_flops_by_hand():
    # 12 layers at S=128: projections 8*128*768^2, feed-forward 4*128*768*3072, attention 4*128^2*768; 20 predictions
    # of 768^2 and 768*30522 products; pooler and next sentence.
    layers = 12 * (603_979_776 + 1_207_959_552 + 50_331_648)
    heads = 20 * 2 * 768 * (768 + 30522) + 2 * 768**2 + 2 * 768 * 2
    assert train_flops(BertConfig(), "pretraining", 16, 128, 20) == 3 * 16 * (layers + heads)


def test_all_positions_count_when_none_are_gathered():
    config = BertConfig.named("tiny")
    gathered, all_of_them = (train_flops(config, "masked_lm", 1, 100, p) for p in (100, None))
    assert gathered == all_of_them > train_flops(config, "encoder", 1, 100)


def test_positions_and_convolution_of_deberta_count():
    config = BertConfig.named("tiny", "deberta-v2", conv_kernel_size=3, position_buckets=8)
    plain = config.replace(pos_att_type=(), conv_kernel_size=0)
    # Two layers of width 128: two products with distances, a table of 16 rows projected twice, and 3 * 128 columns.
    positions, table, convolution = 2 * 2 * 2 * 100**2 * 128, 2 * 2 * 16 * 2 * 128**2, 2 * 3 * 100 * 128**2
    difference = train_flops(config, "encoder", 4, 100) - train_flops(plain, "encoder", 4, 100)
    assert difference == 3 * (4 * (positions + convolution) + table)


def test_shared_keys_late_pooling_and_a_head_without_transform_count():
    config = BertConfig.named("tiny", "eurobert", num_key_value_heads=1, vocab_size=1000)
    each = config.replace(num_key_value_heads=None)
    # Two layers of width 128 with two heads of 64: keys and values of one head less.
    assert (
        train_flops(each, "encoder", 4, 100) - train_flops(config, "encoder", 4, 100) == 3 * 4 * 2 * 100 * 128 * 4 * 64
    )
    transform = train_flops(config.replace(head_transform=True), "masked_lm", 1, 100, predictions=7)
    assert transform - train_flops(config, "masked_lm", 1, 100, predictions=7) == 3 * 7 * 2 * 128**2
    classes = train_flops(config, "sequence_classification", 1, 100) - train_flops(config, "encoder", 1, 100)
    assert classes == 3 * 100 * (2 * 128**2 + 2 * 128 * 2)


def test_windows_and_global_tokens_of_a_longformer_count():
    config = BertConfig.named("tiny", "longformer", attention_windows=(8, 16), max_global_tokens=10)
    plain = config.replace(attention_windows=(), max_global_tokens=0)
    # Two layers of width 128 at S=100, of 17 and 33 keys instead of 100.
    scores = 4 * 100 * (17 + 33 - 200) * 128
    assert train_flops(config, "encoder", 4, 100) - train_flops(plain, "encoder", 4, 100) == 3 * 4 * scores
    for head, tokens in (("sequence_classification", 1), ("question_answering", 10)):
        rows = 2 * (4 * 100 * 128**2 + 2 * tokens * 128**2 + 8 * tokens * 100 * 128)
        difference = train_flops(config, head, 4, 100) - train_flops(plain, head, 4, 100)
        assert difference == 3 * 4 * (scores + rows)


def test_blocks_and_the_span_head_of_big_bird_count():
    config = BertConfig.named("tiny", "big_bird", block_size=4, num_random_blocks=1)
    full = config.replace(attention_type="original_full")
    assert train_flops(config, "encoder", 1, 28) == train_flops(full, "encoder", 1, 28)  # too short for blocks
    # 92 queries attend to 6 blocks of 4 tokens, and 8 to all.
    scores = 2 * 4 * 128 * (92 * 24 + 8 * 100 - 100**2)
    assert train_flops(config, "encoder", 2, 100) - train_flops(full, "encoder", 2, 100) == 3 * 2 * scores
    spans = train_flops(full, "question_answering", 1, 100) - train_flops(full, "encoder", 1, 100)
    assert spans == 3 * (4 * 100 * 128 * 512 + 2 * 100 * 128 * 2)


def test_only_the_experts_of_a_token_count():
    config = BertConfig.named("tiny", "nomic-moe", num_hidden_layers=4, num_experts=5, moe_top_k=3)
    plain = config.replace(stack=StackConfig())
    # Two layers of width 128 with experts: two more experts of a token, and the router; the last layer has 10 tokens.
    per_token = 2 * 4 * 128 * 512 + 2 * 128 * 5
    counts = [train_flops(c, "encoder", 3, 100, last=10) for c in (config, plain)]
    assert counts[0] - counts[1] == 3 * 3 * (100 + 10) * per_token


def test_bottlenecks_blocks_and_trigrams_of_mobilebert_count():
    """Layers of width 512 with bottlenecks and feed-forward blocks of 128 to 512; embeddings of 128."""
    config = BertConfig.named("base", "mobilebert", num_hidden_layers=2)
    attention = 2 * 3 * 128**2 + 2 * 512 * 128  # values are projections of the wide input
    each = attention + 4 * 4 * 128 * 512 + 3 * 2 * 512 * 128
    expected = 2 * (100 * each + 4 * 100**2 * 128) + 2 * 100 * 3 * 128 * 512
    assert train_flops(config, "encoder", 4, 100) == 3 * 4 * expected
    inside = config.replace(use_bottleneck_attention=True)  # values of 128, and no bottleneck for queries and keys
    fewer = 2 * 2 * 100 * 384 * 128 + 2 * 2 * 100 * 512 * 128
    assert train_flops(config, "encoder", 1, 100) - train_flops(inside, "encoder", 1, 100) == 3 * fewer
    # With 10 tokens in the last layer, the others need no query, output, blocks, or dense layers around them.
    left_out = 90 * (2 * 2 * 128**2 + 2 * 2 * 512 * 128 + 4 * 4 * 128 * 512 + 4 * 100 * 128)
    assert train_flops(config, "encoder", 1, 100) - train_flops(config, "encoder", 1, 100, last=10) == 3 * left_out
    head = train_flops(config, "pretraining", 1, 100, 7) - train_flops(config, "encoder", 1, 100)
    assert head == 3 * (7 * 2 * 512 * (512 + 30522) + 2 * 512**2 + 2 * 512 * 2)
    plain = config.replace(pooler_dense=False)
    fewer = train_flops(config, "next_sentence", 1, 100) - train_flops(plain, "next_sentence", 1, 100)
    assert fewer == 3 * 2 * 512**2


def test_both_models_of_electra_count():
    config = BertConfig.named("small", "electra")
    small = generator_config(config, 0.25)
    assert (small.hidden_size, small.num_attention_heads, small.intermediate_size) == (64, 1, 256)
    # 12 layers of 64 at S=128, the embeddings brought from 128 to 64, and 20 predictions.
    layers = 12 * (8 * 128 * 64**2 + 4 * 128 * 64 * 256 + 4 * 128**2 * 64)
    generator = layers + 2 * 128 * 128 * 64 + 20 * 2 * 128 * (64 + 30522)
    expected = 3 * 8 * generator + train_flops(config, "replaced_token_detection", 8, 128)
    assert step_flops(Electra(config, small), batch_of((8, 128), masked_positions=(8, 20))) == expected


def batch_of(ids, **others):
    return {name: np.zeros(shape, np.int32) for name, shape in ({"input_ids": ids} | others).items()}


def test_what_the_last_layer_leaves_out_does_not_count():
    config = BertConfig.named("tiny")  # 2 layers of 128, feed-forward 512
    models = [Bert(config, "pretraining", Compute(layers=layers)) for layers in ("scan", "unroll")]
    whole, less = (
        step_flops(model, batch_of((8, 64), masked_positions=(8, 9), cls_positions=(8, 2))) for model in models
    )
    # 64 - 11 tokens: no query, no output, no feed-forward, and no scores.
    assert whole - less == 3 * 8 * (64 - 11) * (4 * 128**2 + 4 * 128 * 512 + 4 * 64 * 128)
    tagger = Bert(config, "token_classification", Compute(layers="unroll"))
    assert step_flops(tagger, batch_of((8, 64))) == train_flops(config, "token_classification", 8, 64)


def test_six_flops_a_parameter_and_token_when_sequences_are_short():
    config = BertConfig.named("base", vocab_size=1000)
    encoder = 12 * (4 * 768**2 + 2 * 768 * 3072)
    assert train_flops(config, "encoder", 1, 8) == pytest.approx(6 * 8 * encoder, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "tflops"),
    [("TPU v4", 275), ("TPU v5 lite", 197), ("TPU v5p", 459), ("TPU v5", 459), ("TPU v6 lite", 918), ("TPU7x", 1153.5),
     ("NVIDIA A100-SXM4-80GB", 312), ("NVIDIA H100 80GB HBM3", 989), ("NVIDIA H200", 989), ("cpu", None)],
)  # fmt: skip
def test_peaks(kind, tflops):
    assert peak_flops(types.SimpleNamespace(device_kind=kind)) == (tflops and tflops * 1e12)


def test_this_machine_has_no_known_peak():
    if jax.default_backend() == "cpu":
        assert peak_flops(jax.devices()[0]) is None
