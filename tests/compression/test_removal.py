"""What structured removal leaves of a model: the same outputs where what is removed contributed nothing."""

import numpy as np
import pytest
from pruned_models import last_hidden_state, small
from random_models import WITH_LAYERS

from bert_jax.compression import removal
from bert_jax.compression.pruning import Pruning
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.training.flops import train_flops

IDS = np.random.default_rng(1).integers(2, 50, (3, 12))
HEADS = np.array([[0, 1, 3], [1, 2, 3], [0, 2, 3], [0, 1, 2]])


def others(kept, count):
    return [i for i in range(count) if i not in kept]


def silence_heads(config, params, heads):
    """Zero the rows of the output projection that read the heads that are not in `heads`."""
    kernel, size = params["encoder"]["layers"]["attention"]["output"]["kernel"], config.head_size
    for layer, kept in enumerate(heads):
        for head in others(kept, config.num_attention_heads):
            kernel[layer, head * size : (head + 1) * size] = 0


# One of the families with the same layers.
SAME = ("xlm-roberta", "camembert", "data2vec-text", "ernie", "xlm-roberta-xl", "roberta-prelayernorm")
WHOLE = ("albert", "nomic-moe")  # whose layers are tied, or have experts
DIFFERENT = [family for family in WITH_LAYERS if family not in (*SAME, *WHOLE)]
DEPENDENT_HEADS = ("jina-bert", "jina-bert-qk")
SEVERAL_BLOCKS = ("mobilebert",)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("family", [family for family in DIFFERENT if family not in DEPENDENT_HEADS])
def test_heads_whose_output_projection_is_zero_change_nothing(family):
    """Up to rounding: the sum over the rows of the output projection has fewer terms, so its order may be another."""
    config, params = small(family)
    heads = np.tile(HEADS[0], (4, 1)) if family == "mpnet" else HEADS
    silence_heads(config, params, heads)
    smaller, pruned = removal.keep_heads(config, params, heads)
    assert (smaller.num_attention_heads, smaller.head_size, smaller.attention_width) == (3, 8, 24)
    assert pruned["encoder"]["layers"]["attention"]["query"]["kernel"].shape == (4, 32, 24)
    expected = last_hidden_state(config, params, IDS)
    np.testing.assert_allclose(last_hidden_state(smaller, pruned, IDS), expected, atol=2e-6)


def test_a_head_that_contributes_changes_the_output():
    config, params = small()
    smaller, pruned = removal.keep_heads(config, params, HEADS)
    assert abs(last_hidden_state(smaller, pruned, IDS) - last_hidden_state(config, params, IDS)).max() > 1e-3


@pytest.mark.sampled(5)
@pytest.mark.parametrize("family", [family for family in DIFFERENT if family not in SEVERAL_BLOCKS])
def test_columns_whose_down_rows_are_zero_change_nothing(family):
    config, params = small(family)
    random = np.random.default_rng(2)
    columns = np.sort(random.permuted(np.tile(np.arange(24), (4, 1)), axis=1)[:, :17], axis=1)
    for layer, kept in enumerate(columns):
        params["encoder"]["layers"]["mlp"]["down"]["kernel"][layer, others(kept, 24)] = 0
    smaller, pruned = removal.keep_columns(config, params, columns)
    assert smaller.intermediate_size == 17
    expected = last_hidden_state(config, params, IDS)
    np.testing.assert_allclose(last_hidden_state(smaller, pruned, IDS), expected, atol=2e-6)


@pytest.mark.parametrize("layers", [[0, 2], [1, 2, 3], [3]])
def test_kept_layers_are_those_layers(layers):
    config, params = small()
    smaller, pruned = removal.keep_layers(config, params, layers)
    assert smaller == config.replace(num_hidden_layers=len(layers))
    for name in ("up", "down"):
        kernel = params["encoder"]["layers"]["mlp"][name]["kernel"]
        assert np.array_equal(pruned["encoder"]["layers"]["mlp"][name]["kernel"], kernel[layers])
    assert last_hidden_state(smaller, pruned, IDS).shape == (3, 12, 32)


def test_removed_layers_that_do_nothing_change_nothing():
    """In a model with LayerNorm first, a layer whose output projections are zero is the identity."""
    config, params = small("modernbert", global_every=3)
    layers = params["encoder"]["layers"]
    for layer in (1, 2):
        layers["attention"]["output"]["kernel"][layer] = 0
        layers["mlp"]["down"]["kernel"][layer] = 0
    smaller, pruned = removal.keep_layers(config, params, [0, 3])
    assert smaller.windows == (None, None)
    np.testing.assert_allclose(
        last_hidden_state(smaller, pruned, IDS), last_hidden_state(config, params, IDS), atol=2e-6
    )


def test_local_and_global_layers_keep_their_windows():
    config, params = small("modernbert", num_hidden_layers=6, global_every=3)
    assert removal.keep_layers(config, params, [0, 1, 3, 4])[0].windows == tuple(
        config.windows[i] for i in (0, 1, 3, 4)
    )
    with pytest.raises(InputError, match="found global, local, global, local, local"):
        removal.keep_layers(config, params, [0, 1, 3, 4, 5])


def test_rows_of_the_vocabulary():
    config, params = small(head="masked_lm", vocab_size=50, pad_token_id=1, tie_word_embeddings=False)
    config = config.replace(carried=(("cls_token_id", 7), ("mask_token_id", 3), ("cls_token", "<s>")))
    ids = np.array([1, 3, 4, 7, 40])
    smaller, pruned = removal.prune_vocab(config, params, ids, 0)
    assert (smaller.vocab_size, smaller.pad_token_id) == (5, 0)
    assert dict(smaller.carried) == {"cls_token_id": 3, "mask_token_id": 1, "cls_token": "<s>"}
    table = params["embeddings"]["word_embeddings"]["embedding"]
    assert np.array_equal(pruned["embeddings"]["word_embeddings"]["embedding"], table[ids])
    rows = np.array([[3, 2, 4, 1]])
    before = np.asarray(Bert(config, "masked_lm").apply(params, ids[rows]).logits)
    after = np.asarray(Bert(smaller, "masked_lm").apply(pruned, rows).logits)
    np.testing.assert_allclose(after, before[..., ids], atol=1e-6)  # the product has another shape


def test_weights_of_a_querys_tokens_are_removed_with_their_pieces():
    config, params = small(head="sparse_embedding", vocab_size=50, query_weights="trainable", pooling="splade_max")
    params["query_weights"] = {"weight": np.arange(50, dtype=np.float32)}
    ids = np.array([1, 3, 40])
    smaller, pruned = removal.prune_vocab(config, params, ids, 0)
    assert pruned["query_weights"]["weight"].tolist() == [1, 3, 40]
    assert Bert(smaller, "sparse_embedding").apply(pruned, ids[None] * 0).sentence_embedding.shape == (1, 3)


def test_arguments_stay_unchanged():
    config, params = small()
    kernel = params["encoder"]["layers"]["attention"]["query"]["kernel"]
    before = kernel.copy()
    removal.keep_heads(config, params, HEADS)
    assert params["encoder"]["layers"]["attention"]["query"]["kernel"] is kernel
    assert np.array_equal(kernel, before)


def test_the_most_important_parts():
    importance = np.array([[0.1, 0.5, 0.3, 0.5], [9.0, 0.0, 1.0, 2.0]])
    assert removal.most_important(importance, 2).tolist() == [[1, 3], [0, 3]]
    assert removal.most_important(importance, 3).tolist() == [[1, 2, 3], [0, 2, 3]]
    assert removal.most_important(importance, 2, together=True).tolist() == [[0, 3], [0, 3]]


@pytest.mark.parametrize(
    ("remove", "says"),
    [
        (lambda c, p: removal.keep_heads(c, p, np.tile([0, 4], (4, 1))), "heads: expected .* from 0 to 3"),
        (lambda c, p: removal.keep_heads(c, p, np.zeros((4, 0), int)), "heads: expected .* found an array of shape"),
        (lambda c, p: removal.keep_columns(c, p, np.array([[1, 0]] * 4)), "columns: expected .* ascending"),
        (lambda c, p: removal.keep_layers(c, p, [0, 4]), "layers: expected ascending numbers from 0 to 3"),
        (lambda c, p: removal.keep_layers(c, p, []), "layers: expected ascending numbers"),
        (lambda c, p: removal.prune_vocab(c, p, np.array([3, 2]), 0), "ids: expected ascending ids from 0 to 49"),
    ],
)
def test_invalid_parts(remove, says):
    with pytest.raises(InputError, match=says):
        remove(*small())


def test_parts_that_an_architecture_cannot_lose():
    with pytest.raises(InputError, match="heads: expected the same heads in all layers"):
        removal.keep_heads(*small("mpnet"), HEADS)
    for remove, kept in ((removal.keep_heads, HEADS), (removal.keep_columns, HEADS), (removal.keep_layers, [0])):
        with pytest.raises(
            InputError, match="expected a model whose layers have parameters of their own, found num_hid"
        ):
            remove(*small("albert"), kept)
    with pytest.raises(InputError, match="only pieces of the vocabulary can be removed"):
        Pruning(heads=0.5).sizes(small("albert")[0])
    for remove, kept in ((removal.keep_heads, HEADS), (removal.keep_columns, HEADS), (removal.keep_layers, [0])):
        with pytest.raises(InputError, match="expected a model without experts, found num_experts"):
            remove(*small("nomic-moe"), kept)
    for family, found in (("jina-bert", "positions of type alibi"), ("bert", "qk_norm")):
        with pytest.raises(InputError, match=f"heads do not depend on each other, found one with {found}"):
            removal.keep_heads(*small(family, qk_norm=family == "bert"), HEADS)
    with pytest.raises(InputError, match="heads: expected keys for each of the 4 heads, found 2 heads of keys"):
        removal.keep_heads(*small("eurobert", num_key_value_heads=2), HEADS)
    with pytest.raises(InputError, match="layers: expected layer 0"):
        removal.keep_layers(*small("modernbert"), [1, 2])
    with pytest.raises(InputError, match="layers: expected layer 0 too, as the convolution"):
        removal.keep_layers(*small("deberta-v2", conv_kernel_size=3), [1, 2])


def test_a_longformer_keeps_the_windows_of_its_layers_and_the_projections_of_its_global_tokens():
    windows = {"attention_windows": (1, 2, 1, 4), "max_global_tokens": 3}
    config, params = small("longformer", **windows)
    smaller, pruned = removal.keep_layers(config, params, [1, 3])
    assert (smaller.windows, smaller.attention.attention_windows) == ((2, 4), (2, 4))
    smaller, pruned = removal.keep_heads(config, params, HEADS)
    assert pruned["encoder"]["layers"]["attention"]["global_query"]["kernel"].shape == (4, 32, 24)


def test_the_separator_is_renumbered():
    config, params = small("longformer", sep_token_id=7)
    smaller, _ = removal.prune_vocab(config, params, np.array([0, 1, 5, 7, 9]), 1)
    assert (smaller.setting("sep_token_id"), small("bert")[0].setting("sep_token_id")) == (3, None)


@pytest.mark.parametrize("family", WITH_LAYERS)
def test_config_json_has_the_head_size(family):
    config = BertConfig.named("tiny", family, hidden_size=32, num_attention_heads=3, head_dim=8, intermediate_size=24)
    content = config.to_hf()
    assert content["head_dim"] == 8
    assert BertConfig.from_hf(content) == config
    whole = config.replace(num_attention_heads=4)
    assert whole.head_dim is None
    assert whole == BertConfig.named("tiny", family, hidden_size=32, num_attention_heads=4, intermediate_size=24)


def test_flops_of_fewer_heads():
    """S = 4, D = 32, A = 24, F = 24, one layer: 4 * (8 * 32 * 24 + 4 * 32 * 24) + 4 * 4 * 4 * 24, times 3."""
    config = BertConfig(hidden_size=32, num_attention_heads=3, head_dim=8, intermediate_size=24, num_hidden_layers=1)
    assert train_flops(config, "encoder", 1, 4) == 3 * (4 * (8 * 32 * 24 + 4 * 32 * 24) + 4 * 4 * 4 * 24)
