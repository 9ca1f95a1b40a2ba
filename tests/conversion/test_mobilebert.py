"""What MobileBERT alone has: bottlenecks, several feed-forward blocks, trigrams, and columns of the masked-LM head."""

import jax
import numpy as np
import pytest
from small_models import edit, equal, write_model

from bert_jax import from_pretrained
from bert_jax.compression import removal
from bert_jax.compression.importance import measure_importance
from bert_jax.config import BertConfig
from bert_jax.config.quantization import Quantization
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.families.longformer.parts import GlobalTokensConfig
from bert_jax.families.nomic_bert.parts import ExpertsConfig
from bert_jax.jobs.distillation.teachers import Teacher, principal_embeddings
from bert_jax.modeling import Bert, Compute
from bert_jax.modeling.quantized import dequantize_params, quantize_params
from bert_jax.modeling.reconstruction import check_reconstruction
from bert_jax.tasks.classification.task import ClassificationTask

NARROW = {"embedding_size": 4, "intra_bottleneck_size": 6, "num_feedforward_networks": 3}
HF = {
    "model_type": "mobilebert", "vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 12, "hidden_act": "relu", "embedding_size": 8, "intra_bottleneck_size": 8,
}  # fmt: skip


def random_model(head="encoder", **fields):
    """A model with random parameters, and rows of 9 tokens, one with padding at its end."""
    shape = {"vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 12, "max_position_embeddings": 16}  # fmt: skip
    config = BertConfig.named("tiny", "mobilebert", **shape | NARROW | fields)
    bert, generator = Bert(config, head), np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: generator.normal(0, 0.3, leaf.shape).astype(np.float32), bert.abstract_params())
    return bert, params, generator.integers(1, 31, (2, 9))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"true_hidden_size": 16}, "true_hidden_size: expected intra_bottleneck_size, 8, found 16"),
        ({"use_bottleneck": False, "true_hidden_size": 8}, "true_hidden_size: expected hidden_size, 16, found 8"),
        ({"normalization_type": "rms_norm"}, "normalization_type: expected no_norm or layer_norm, found 'rms_norm'"),
        ({"key_query_shared_bottleneck": False}, "key_query_shared_bottleneck: expected true where use_bottleneck_att"),
        ({"embedding_size": 16, "trigram_input": False}, "embedding_size: expected less than hidden_size 16 with trig"),
        ({"embedding_size": 32}, "embedding_size: expected at most hidden_size 16, as the masked-LM head .* found 32"),
        ({"num_attention_heads": 3}, "num_attention_heads 3 must divide intra_bottleneck_size 8"),
        ({"num_feedforward_networks": 0}, "num_feedforward_networks must be a positive integer, found 0"),
        ({"intra_bottleneck_size": 0}, "intra_bottleneck_size must be a positive integer, found 0"),
        ({"use_bottleneck": 1}, "use_bottleneck must be true or false, found 1"),
        ({"position_embedding_type": "rotary"}, "position_embedding_type: expected 'absolute', found 'rotary'"),
    ],
)
def test_values_that_do_not_fit_are_refused(changes, message):
    assert BertConfig.from_hf(HF).layer.intra_bottleneck_size == 8
    with pytest.raises(InputError, match=message):
        BertConfig.from_hf(HF | changes)


def test_a_bottleneck_is_refused_beside_switches_that_it_does_not_fit():
    config = BertConfig.from_hf(HF)
    for changes in (
        {"norm_placement": "pre"},
        {"stack": ExpertsConfig(2)},
        {"attention": GlobalTokensConfig(max_global_tokens=1)},
    ):
        with pytest.raises(InputError, match=r"intra_bottleneck_size: expected 0 with .*, found 8"):
            config.replace(**changes)


def test_the_published_size():
    """24,581,888 parameters: the number of google/mobilebert-uncased, whose pooler has no dense layer."""
    config = BertConfig.named("base", "mobilebert", pooler_dense=False)
    leaves = jax.tree.leaves(Bert(config).abstract_params())
    assert sum(leaf.size for leaf in leaves) == 24_581_888


def test_sizes_that_are_not_said_are_those_of_the_tensors(tmp_path):
    write_model(tmp_path, "mobilebert", "masked_lm", **NARROW)
    whole = load_pretrained(tmp_path)
    edit(tmp_path, **dict.fromkeys(("hidden_size", "embedding_size", "intermediate_size", "intra_bottleneck_size",
                                    "num_feedforward_networks", "num_hidden_layers", "model_type", "architectures",
                                    "true_hidden_size")))  # fmt: skip
    found = load_pretrained(tmp_path)
    assert (found.config, found.head) == (whole.config, "masked_lm") and equal(found.params, whole.params)


@pytest.mark.parametrize(
    ("key", "found", "expected"),
    [("num_feedforward_networks", 2, 3), ("num_feedforward_networks", 4, 3), ("hidden_size", 6, 8),
     ("intra_bottleneck_size", 8, 6)],
)  # fmt: skip
def test_sizes_that_the_tensors_contradict(tmp_path, key, found, expected):
    write_model(tmp_path, "mobilebert", **NARROW)
    edit(tmp_path, **{key: found})
    with pytest.raises(InputError, match=f"config.json: {key}: expected {expected}, as in tensor .*, found {found}$"):
        load_pretrained(tmp_path)


def test_padding_changes_no_output(tmp_path):
    """Although the embedding of padding is not 0; transformers, without padding, has the same outputs."""
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    transformers = pytest.importorskip("transformers", reason="the oracle; installed on Python 3.11 only")
    write_model(tmp_path, "mobilebert", **NARROW)
    ours, theirs = from_pretrained(tmp_path), transformers.MobileBertModel.from_pretrained(tmp_path).eval()
    assert theirs.embeddings.word_embeddings.weight[ours.config.pad_token_id].any()
    ids, lengths = np.random.default_rng(1).integers(2, 31, (2, 9)), (9, 5)
    mask = (np.arange(9) < np.reshape(lengths, (2, 1))).astype(np.int32)
    found = ours(input_ids=np.where(mask, ids, ours.config.pad_token_id), attention_mask=mask).last_hidden_state
    for row, length in enumerate(lengths):
        with torch.no_grad():
            expected = theirs(torch.tensor(ids[row : row + 1, :length])).last_hidden_state[0].numpy()
        np.testing.assert_allclose(found[row, :length], expected, rtol=0, atol=1e-5 * abs(expected).max())


@pytest.mark.parametrize("shared", [True, False])
def test_the_last_layer_of_a_few_positions_is_that_of_all(shared):
    fields = {"key_query_shared_bottleneck": shared, "use_bottleneck_attention": not shared}
    bert, params, ids = random_model("pretraining", **fields)
    masked = np.array([[1, 4, 7], [0, 2, 8]])
    found, expected = (
        Bert(bert.config, bert.head, Compute(layers=layers)).apply(
            params, ids, masked_positions=masked, output_last_hidden_state=layers == "scan"
        )
        for layers in ("unroll", "scan")
    )
    for name in ("prediction_logits", "seq_relationship_logits"):
        value = getattr(expected, name)
        np.testing.assert_allclose(getattr(found, name), value, rtol=0, atol=1e-5 * abs(value).max())


def test_a_part_of_the_vocabulary_has_its_logits():
    bert, params, _ = random_model("masked_lm")
    kept = np.array([0, 2, 3, 5, 8, 13, 30])
    smaller, pruned = removal.prune_vocab(bert.config, params, kept, 0)
    expected = bert.apply(params, kept[[[1, 4, 6]]]).logits[..., kept]
    found = Bert(smaller, "masked_lm").apply(pruned, np.array([[1, 4, 6]])).logits
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())


def test_heads_are_removed_and_columns_are_refused():
    bert, params, ids = random_model(intra_bottleneck_size=8)
    output = params["encoder"]["layers"]["attention"]["output"]["kernel"]
    output[:, :4] = 0  # reads head 0
    smaller, pruned = removal.keep_heads(bert.config, params, np.array([[1], [1]]))
    assert (smaller.head_dim, smaller.inner_size) == (4, 8)
    expected = bert.apply(params, ids).last_hidden_state
    found = Bert(smaller).apply(pruned, ids).last_hidden_state
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())
    with pytest.raises(InputError, match="columns: expected layers of one feed-forward block, found num_feedforward_n"):
        removal.keep_columns(bert.config, params, np.array([[1], [1]]))


@pytest.mark.slow
def test_the_importance_of_a_layer_is_that_of_its_bottleneck():
    bert, params, ids = random_model("sequence_classification", pooler_dense=False)
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids),
             "labels": np.array([0, 1]), "example_weights": np.ones(2, np.float32)}  # fmt: skip
    task = ClassificationTask(bert, ())

    def loss(masks, row):
        output = params["encoder"]["layers"]["bottleneck"]["output"]
        bottleneck = params["encoder"]["layers"]["bottleneck"] | {
            "output": output | {"kernel": output["kernel"] * masks[:, None, None]}
        }
        layers = params["encoder"]["layers"] | {"bottleneck": bottleneck}
        one = {name: array[row : row + 1] for name, array in batch.items()}
        return task.loss(params | {"encoder": {"layers": layers}}, one, None, task.weights(one))[0]

    gradients = [jax.grad(loss)(np.ones(2, np.float32), row) for row in range(2)]
    found = measure_importance(task, params, [batch])
    np.testing.assert_allclose(found.layers, np.mean(np.abs(gradients), axis=0), rtol=2e-4)


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_kernels_of_blocks_and_bottlenecks_are_quantized(mode):
    bert, params, ids = random_model("masked_lm", intra_bottleneck_size=8, embedding_size=8, intermediate_size=16)
    quantization = Quantization(mode, group_size=8)
    quantized = quantize_params(params, quantization)
    layers = quantized["encoder"]["layers"]
    for kernel in (layers["bottleneck"]["query_key"]["kernel"], layers["ffn_1"]["down"]["kernel"]):
        assert kernel.keys() == {"packed" if mode == "int4" else "quantized", "scale"}
    assert isinstance(quantized["mlm"]["further_decoder"]["embedding"], np.ndarray)  # as all of this head
    found = Bert(bert.config.replace(quantization=quantization), bert.head).apply(quantized, ids).logits
    expected = bert.apply(dequantize_params(quantized, quantization), ids).logits
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())


def test_a_decoder_that_would_see_the_next_token_is_refused():
    with pytest.raises(InputError, match=r"config.model.trigram_input: expected False for a decoder with the same lay"):
        check_reconstruction(random_model()[0].config)


def test_principal_components_of_word_embeddings_are_refused():
    teacher = Teacher(Bert(BertConfig.named("tiny")), {}, None, None)
    with pytest.raises(InputError, match=r"student_embeddings: expected word embeddings as wide as those of positions"):
        principal_embeddings(teacher, random_model()[0].config)
