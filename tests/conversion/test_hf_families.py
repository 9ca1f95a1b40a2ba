"""Every family and head beside Hugging Face transformers, from the same random weights, in float32.

Tolerances are relative: the largest difference over the largest value of a tensor.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import from_pretrained
from bert_jax.config import BertConfig
from bert_jax.conversion.state_dict_writing import to_huggingface
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES
from bert_jax.families.deberta.blocks import distance_rows
from bert_jax.head_names import EMBEDDING_HEADS
from bert_jax.modeling.distance_bias import distance_buckets

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")

import neobert_oracle  # noqa: E402

VOCABULARY, LENGTHS, CHOICES = 97, (23, 13, 7), 3
_BERT = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96}
_ROBERTA = _BERT | {"pad_token_id": 1, "max_position_embeddings": 40, "type_vocab_size": 1}
_T5 = {"d_model": 48, "num_layers": 3, "num_heads": 4, "d_ff": 96, "d_kv": 16, "feed_forward_proj": "gated-gelu"}
# What each family's transformers config is made of; pad_token_id 1 is RoBERTa's.
CONFIGS = {
    "bert": _BERT,
    "distilbert": {"dim": 48, "n_layers": 3, "n_heads": 4, "hidden_dim": 96},
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "data2vec-text": _ROBERTA,
    "roberta-prelayernorm": _ROBERTA,
    "xlm-roberta-xl": _ROBERTA,
    "ernie": _BERT | {"use_task_id": True, "task_type_vocab_size": 4},
    "megatron-bert": _BERT,
    "albert": _BERT | {"embedding_size": 16, "num_hidden_groups": 2, "inner_group_num": 2},
    "mobilebert": _BERT
    | {
        "embedding_size": 16,
        "intra_bottleneck_size": 24,
        "num_feedforward_networks": 3,
        "classifier_activation": False,
    },
    "electra": _BERT | {"embedding_size": 16},
    "mpnet": _BERT | {"pad_token_id": 1, "max_position_embeddings": 40},
    "nomic_bert": _BERT,
    "modernbert": _BERT | {"num_hidden_layers": 5, "local_attention": 8, "pad_token_id": 1},
    "deberta": _BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False},
    # As v3, with buckets that are smaller than the distances.
    "deberta-v2": _BERT
    | {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
    },
    "neobert": _BERT | {"intermediate_size": 100, "max_length": 64},  # 66 rounded up to a multiple of 8
    "roformer": _BERT | {"embedding_size": 16},
    "esm": _BERT
    | {
        "pad_token_id": 1,
        "mask_token_id": 5,
        "position_embedding_type": "rotary",
        "token_dropout": True,
        "emb_layer_norm_before": False,
        "eos_token_id": 2,
    },
    "eurobert": _BERT | {"num_key_value_heads": 2, "classifier_pooling": "late"},
    "gemma3_text": _BERT
    | {
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "sliding_window": 8,
        "sliding_window_pattern": 3,
        "use_bidirectional_attention": True,
        "query_pre_attn_scalar": 10,
    },
    "t5": _T5 | {"feed_forward_proj": "relu"},
    "mt5": _T5 | {"relative_attention_max_distance": 20, "relative_attention_num_buckets": 12},
    "umt5": _T5 | {"feed_forward_proj": "gated-silu", "d_kv": 8},
    "qwen3": _BERT | {"num_key_value_heads": 2, "head_dim": 16},
    "longformer": _ROBERTA | {"attention_window": [4, 8, 4], "sep_token_id": 2},
    "big_bird": _BERT | {"attention_type": "original_full"},  # test_hf_sparse_attention has the other
    "gte": _BERT | {"pad_token_id": 1, "type_vocab_size": 1},
    "jina_embeddings_v3": _BERT | {"pad_token_id": 1, "type_vocab_size": 1},
}
OTHER_MAPS = ("longformer",)  # whose attention maps have another layout: test_hf_sparse_attention compares them
OUR_NAMES = {"sop_logits": "seq_relationship_logits"}
THEIR_NAMES = {ours: theirs for theirs, ours in OUR_NAMES.items()}
SLOW = pytest.mark.slow
QUICK = ("masked_lm", "replaced_token_detection")
# Of families whose heads are those of RoBERTa or BERT: other heads, and gradients of all but two, are slow tests.
SAME_HEADS = ("camembert", "data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "ernie", "megatron-bert")
QUICK_HEADS = dict.fromkeys(SAME_HEADS, ("masked_lm",)) | {
    "albert": ("pretraining", "sequence_classification"),
    "mobilebert": ("pretraining",),
}
QUICK_GRADIENTS = {
    *((family, head) for family in FAMILIES for head in QUICK if family not in QUICK_HEADS),
    ("xlm-roberta-xl", "masked_lm"),
    ("ernie", "masked_lm"),
    ("albert", "pretraining"),
    ("mobilebert", "pretraining"),
}
CASES = [
    pytest.param(family, head, marks=[] if head in QUICK_HEADS.get(family, (head,)) else [SLOW])
    for family, kind in FAMILIES.items()
    for head in kind.names.architectures
    if family in CONFIGS and head not in EMBEDDING_HEADS
    if (family, head) != ("deberta-v2", "replaced_token_detection")
]


# Switches that some models of a family set otherwise: (family, head, changes of its config, whether it is quick).
VARIANTS = {
    "v1 with all embeddings": ("deberta", "masked_lm", {
        "legacy": False, "type_vocab_size": 2, "position_biased_input": True, "max_relative_positions": 9}, True),
    "v1, c2p": ("deberta", "sequence_classification", {
        "embedding_size": 16, "pos_att_type": "c2p", "pooler_hidden_act": "tanh"}, False),
    "v1, p2c": ("deberta", "encoder", {"pos_att_type": "p2c"}, False),
    "v1, only absolute positions": ("deberta", "encoder", {
        "relative_attention": False, "pos_att_type": None, "position_biased_input": True}, False),
    "v2-xlarge": ("deberta-v2", "masked_lm", {
        "attention_head_size": 12, "conv_kernel_size": 3, "conv_act": "gelu", "share_att_key": False,
        "norm_rel_ebd": "none", "legacy": False, "type_vocab_size": 2, "position_biased_input": True}, True),
    "embeddings of another width": ("deberta-v2", "encoder", {
        "embedding_size": 16, "position_buckets": -1, "max_relative_positions": 9, "conv_kernel_size": 5,
        "num_hidden_layers": 1}, True),
    "c2p": ("deberta-v2", "encoder", {"pos_att_type": "c2p", "share_att_key": False}, False),
    "p2c": ("deberta-v2", "encoder", {"pos_att_type": "p2c", "position_buckets": -1}, False),
    "shared, without buckets": ("deberta-v2", "encoder", {"position_buckets": -1}, False),
    "only absolute positions": ("deberta-v2", "encoder", {
        "relative_attention": False, "pos_att_type": None, "norm_rel_ebd": "none",
        "position_biased_input": True}, False),
    "a key head for each head": ("eurobert", "masked_lm", {
        "num_key_value_heads": None, "tie_word_embeddings": True}, False),
    "one key head, biases": ("eurobert", "masked_lm", {
        "num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True}, True),
    "mean": ("eurobert", "sequence_classification", {"classifier_pooling": "mean"}, False),
    "bos": ("eurobert", "sequence_classification", {"classifier_pooling": "bos"}, False),
    "esm-1b": ("esm", "masked_lm", {"position_embedding_type": "absolute", "emb_layer_norm_before": True,
        "token_dropout": True, "tie_word_embeddings": False}, True),
    "esm without dropout of tokens": ("esm", "sequence_classification", {
        "token_dropout": False, "mask_token_id": None}, False),
    "values that rotate": ("roformer", "masked_lm", {"rotary_value": True, "embedding_size": None}, True),
    "a classifier with relu": ("roformer", "sequence_classification", {"hidden_act": "relu"}, False),
    "without segments, with scaled positions": ("gte", "encoder", {
        "type_vocab_size": 0, "rope_parameters": {"rope_type": "linear", "factor": 1.3, "rope_theta": 5000.0}}, True),
    "mobilebert with LayerNorm, and a dense pooler": ("mobilebert", "sequence_classification", {
        "normalization_type": "layer_norm", "classifier_activation": True, "hidden_act": "gelu"}, True),
    "mobilebert without bottleneck": ("mobilebert", "next_sentence", {
        "use_bottleneck": False, "num_feedforward_networks": 1, "normalization_type": "layer_norm"}, True),
    "mobilebert with attention in the bottleneck, without trigrams": ("mobilebert", "masked_lm", {
        "use_bottleneck_attention": True, "key_query_shared_bottleneck": False, "trigram_input": False}, True),
    "mobilebert with a bottleneck that nothing reads": ("mobilebert", "token_classification", {
        "use_bottleneck_attention": True, "normalization_type": "layer_norm"}, False),
    "mobilebert without shared bottleneck": ("mobilebert", "encoder", {
        "key_query_shared_bottleneck": False, "intra_bottleneck_size": 48, "normalization_type": "layer_norm"}, False),
    "mobilebert with wide word embeddings": ("mobilebert", "encoder", {
        "embedding_size": 48, "num_feedforward_networks": 2}, False),
    "gemma with biases, all layers global": ("gemma3_text", "encoder", {
        "attention_bias": True, "sliding_window_pattern": 1, "num_key_value_heads": 4,
        "query_pre_attn_scalar": 16}, False),
    "linear positions": ("eurobert", "encoder", {"rope_parameters": {
        "rope_type": "linear", "factor": 3.0, "rope_theta": 500.0}}, False),
    "llama 3's positions": ("eurobert", "masked_lm", {"rope_parameters": {
        "rope_type": "llama3", "factor": 8.0, "rope_theta": 500.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 40}}, True),
    "yarn in local and global layers": ("modernbert", "masked_lm", {"rope_parameters": {
        "full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 900.0,
                           "original_max_position_embeddings": 16},
        "sliding_attention": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 100.0, "attention_factor": 1.3,
                              "original_max_position_embeddings": 24, "beta_fast": 16.0, "beta_slow": 2.0}}}, True),
    "dynamic positions": ("qwen3", "encoder", {"rope_parameters": {
        "rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0}}, False),
    "yarn with scales": ("qwen3", "sequence_classification", {"rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0, "original_max_position_embeddings": 16,
        "mscale": 1.0, "mscale_all_dim": 0.7}}, False),
    "linear positions in global layers": ("gemma3_text", "encoder", {"num_hidden_layers": 3, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 900.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}, False),
    "another pooler": ("deberta-v2", "sequence_classification", {"pooler_hidden_act": "tanh"}, False),
}  # fmt: skip
VARIED = [
    pytest.param(family, head, changes, id=name, marks=[] if quick else pytest.mark.slow)
    for name, (family, head, changes, quick) in VARIANTS.items()
]


def relative(ours, theirs) -> float:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def oracle(family: str, head: str, **changes):
    """A transformers model in which every parameter is random, LayerNorms and biases too."""
    torch.manual_seed(0)
    classes = FAMILIES[family].names.architectures
    library = neobert_oracle if family == "neobert" else transformers
    kind = getattr(library, classes["encoder"]).config_class
    fields = {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 2}
    fields |= {"eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3, "attn_implementation": "eager"}
    config = kind(**fields | CONFIGS[family] | changes)
    model = getattr(library, classes[head])(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:  # a RoFormer's table of sines and cosines
                continue
            is_scale = name.endswith("weight") and ("norm" in (part := name.lower().split(".")[-2]) or part == "ln")
            parameter.normal_(1.0 if is_scale else 0.0, 0.15)
        if getattr(config, "trigram_input", False):  # as in a fresh model: a trigram with padding reads it
            model.get_input_embeddings().weight[config.pad_token_id] = 0
    return model


def batch(model, head: str, padded: bool = True) -> dict[str, np.ndarray]:
    """Rows of several lengths, or of one; two segments where the model has them; for multiple choice, three of each."""
    generator = np.random.default_rng(1)
    pad = model.config.pad_token_id
    shape = (len(LENGTHS), CHOICES, max(LENGTHS)) if head == "multiple_choice" else (len(LENGTHS), max(LENGTHS))
    lengths = np.asarray(LENGTHS if padded else (max(LENGTHS),) * 3).reshape((-1,) + (1,) * (len(shape) - 1))
    mask = np.broadcast_to(np.arange(max(LENGTHS)) < lengths, shape)
    ids = generator.integers(2, VOCABULARY, shape)
    if getattr(model.config, "token_dropout", False):
        ids[..., [1, 4]] = model.config.mask_token_id
    inputs = {
        "input_ids": np.where(mask, ids, pad),
        "attention_mask": mask.copy(),
    }
    if model.config.model_type == "longformer":  # as rows of a pair: <s> A </s></s> B </s>
        separators = np.stack([lengths // 3, lengths // 3 + 1, lengths - 1])
        is_separator = (np.arange(max(LENGTHS)) == separators).any(0)
        ids = np.where(inputs["input_ids"] == 2, 5, inputs["input_ids"])
        inputs["input_ids"] = np.where(is_separator, 2, ids)
    if getattr(model.config, "type_vocab_size", 0) > 1 and model.config.model_type != "modernbert":
        inputs["token_type_ids"] = np.broadcast_to(np.arange(max(LENGTHS)) >= lengths // 2, shape) & mask
    if getattr(model.config, "use_task_id", False) and head != "multiple_choice":  # where transformers takes none
        inputs["task_type_ids"] = generator.integers(0, model.config.task_type_vocab_size, shape)
    return {name: array.astype(np.int32) for name, array in inputs.items()}


def run(model, inputs):
    with torch.no_grad():
        return model(
            **{name: torch.tensor(array).long() for name, array in inputs.items()},
            output_hidden_states=True,
            output_attentions=True,
        )


@pytest.mark.oracle("family")
@pytest.mark.sampled(28)
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])
@pytest.mark.parametrize(("family", "head"), CASES)
def test_outputs(tmp_path, family, head, padded):
    check_outputs(tmp_path, oracle(family, head), family, head, padded)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("family", "head", "changes"), VARIED)
def test_outputs_of_variants(tmp_path, family, head, changes):
    check_outputs(tmp_path, oracle(family, head, **changes), family, head, padded=True)


BIASED = [family for family, kind in FAMILIES.items() if any(name.endswith(".bias") for name, _ in kind.names.tied)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "family",
    [pytest.param(family, marks=[] if family in ("bert", "roberta", "albert") else [SLOW])
     for family in BIASED if family in CONFIGS],
)  # fmt: skip
def test_an_untied_output_matrix_has_a_bias_of_its_own(tmp_path, family):
    """Where the matrix is not the word embedding, transformers adds its layer's bias, not the one of the head."""
    model = oracle(family, "masked_lm", tie_word_embeddings=False)
    check_outputs(tmp_path / "theirs", model, family, "masked_lm", padded=True)
    ours = from_pretrained(tmp_path / "theirs")
    ours.save_pretrained(tmp_path / "ours")
    again, info = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    unused = [original for name, original in FAMILIES[family].names.tied if name.endswith(".bias")]
    before, after = model.state_dict(), again.state_dict()
    assert [name for name, tensor in before.items() if not torch.equal(after[name], tensor)] == unused


def check_outputs(tmp_path, model, family, head, padded):
    model.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    assert (ours.config.family, ours.head, ours.missing) == (family, head, ())
    inputs = batch(model, head, padded)
    expected = run(model, inputs)
    out = ours(**inputs, output_hidden_states=True, output_attentions=True)
    is_token = inputs["attention_mask"].reshape(-1, max(LENGTHS)) > 0
    compared = 0
    for name in ("last_hidden_state", "pooler_output", "logits", "prediction_logits", "seq_relationship_logits",
                 "start_logits", "end_logits"):  # fmt: skip
        if (theirs := expected.get(THEIR_NAMES.get(name, name), expected.get(name))) is None:
            continue
        found, theirs = getattr(out, name), theirs.numpy()
        if found.shape[:2] == is_token.shape:  # what stands at padding is nobody's concern
            found, theirs = found[is_token], theirs[is_token]
        assert relative(found, theirs) < 1e-5, name
        compared += 1
    assert compared >= 1
    assert len(out.hidden_states) == len(expected.hidden_states) == ours.config.num_hidden_layers + 1
    for state, theirs in zip(out.hidden_states, expected.hidden_states, strict=True):
        assert relative(state[is_token], theirs.numpy()[is_token]) < 1e-5
    assert len(out.attentions) == len(expected.attentions)
    for attention, theirs in zip(out.attentions, expected.attentions, strict=True):
        if family in OTHER_MAPS:
            break
        at_tokens = [np.moveaxis(np.asarray(x), 2, 1)[is_token] for x in (attention, theirs)]
        assert relative(*at_tokens) < 1e-5
    plain = ours(**inputs)  # without the maps another way to attend may be taken
    assert relative(plain.last_hidden_state[is_token], out.last_hidden_state[is_token]) < 1e-5


# The gradients of every family, and of every head: what is left are pairs of these.
@pytest.mark.sampled(30)
@pytest.mark.parametrize(
    ("family", "head"),
    [
        pytest.param(*case.values, marks=[] if case.values[0] == "bert" or case.values in QUICK_GRADIENTS else SLOW)
        for case in CASES
    ],
)
def test_gradients(tmp_path, family, head):
    check_gradients(tmp_path, oracle(family, head), family, head)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("family", "head", "changes"), VARIED)
def test_gradients_of_variants(tmp_path, family, head, changes):
    check_gradients(tmp_path, oracle(family, head, **changes), family, head)


def check_gradients(tmp_path, model, family, head):
    model.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    inputs = batch(model, head)
    is_token = inputs["attention_mask"].reshape(-1, max(LENGTHS)) > 0
    outputs = {OUR_NAMES.get(name, name): value for name, value in model(**tensors(inputs)).items() if name in (
        "last_hidden_state", "pooler_output", "logits", "prediction_logits", "seq_relationship_logits", "sop_logits",
        "start_logits", "end_logits")}  # fmt: skip
    generator = np.random.default_rng(2)
    up = {name: generator.standard_normal(value.shape).astype(np.float32) for name, value in outputs.items()}
    for array in up.values():
        if array.shape[:2] == is_token.shape:
            array[~is_token] = 0
    sum((value * torch.tensor(up[name])).sum() for name, value in outputs.items()).backward()

    @jax.jit
    def loss(params):
        out = ours.bert.apply(params, **{k: jnp.asarray(v) for k, v in inputs.items()})
        return sum((getattr(out, name) * array).sum() for name, array in up.items())

    named = to_huggingface(ours.config, ours.head, jax.grad(loss)(ours.params))
    # What no output reads has no gradient.
    named = {name: array for name, array in named.items() if array.any() or "contact_head" not in name}
    named = {name: array for name, array in named.items() if not name.endswith(("inv_freq", "embed_positions.weight"))}
    tied = dict(FAMILIES[family].names.tied) if ours.config.tie_word_embeddings else {}
    expected = {tied.get(name, name): p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    expected.pop("roformer.encoder.embed_positions.weight", None)
    assert expected.keys() <= named.keys()
    assert not any(named[name].any() for name in named.keys() - expected.keys())  # of what the head does not use
    largest = max(np.abs(gradient).max() for gradient in expected.values())
    for name, gradient in expected.items():
        # A key's bias has no gradient in exact arithmetic: what both give there is rounding.
        tolerance = max(1e-4 * np.abs(gradient).max(), 1e-6 * largest)
        assert np.abs(named[name] - gradient).max() < tolerance, name


def tensors(inputs):
    return {name: torch.tensor(array).long() for name, array in inputs.items()}


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("family", "head"), CASES)
def test_round_trip_is_bitwise(tmp_path, family, head):
    check_round_trip(tmp_path, oracle(family, head))


@pytest.mark.parametrize(("family", "head", "changes"), VARIED)
def test_round_trip_of_variants_is_bitwise(tmp_path, family, head, changes):
    check_round_trip(tmp_path, oracle(family, head, **changes))


def check_round_trip(tmp_path, model):
    model.save_pretrained(tmp_path / "theirs")
    from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    again, info = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype and torch.equal(after[name], tensor), name
    ours = json.loads((tmp_path / "ours" / "config.json").read_text())
    for key, value in json.loads((tmp_path / "theirs" / "config.json").read_text()).items():
        if key in ours and key not in ("transformers_version", "dtype"):
            assert ours[key] == value, key


def test_tasks_are_refused_by_a_model_without_them(tmp_path):
    oracle("ernie", "encoder", use_task_id=False).save_pretrained(tmp_path)
    ours, ids = from_pretrained(tmp_path), np.full((1, 3), 5)
    assert "task_type_embeddings" not in ours.params["embeddings"]
    with pytest.raises(InputError, match="task_type_ids: expected none, as the model has no task embedding, found an"):
        ours(ids, task_type_ids=np.zeros_like(ids))


def test_distances_have_the_buckets_of_mpnet():
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distances = torch.arange(300)[None] - torch.arange(300)[:, None]
    expected = MPNetEncoder.relative_position_bucket(distances, num_buckets=32).numpy()
    np.testing.assert_array_equal(distance_buckets(300, 32, 128), expected)


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (8, 64), (32, 100), (3, 9), (256, 100)])
def test_distances_have_the_buckets_of_deberta(buckets, most):
    from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

    length = min(most, 700) if most < buckets else 700
    rows = torch.zeros(length, 1)
    expected = build_relative_position(rows, rows, bucket_size=buckets, max_position=most)[0].numpy()
    expected = np.clip(expected + buckets, 0, 2 * buckets - 1)
    found = distance_rows(length, buckets, buckets, most)
    at = np.arange(length)
    np.testing.assert_array_equal(found[at[:, None] - at + length - 1], expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pos_att_type": "c2c|p2c"}, "pos_att_type: expected c2p or p2c, or both, found 'c2c'"),
        ({"pos_att_type": 3}, "pos_att_type: expected names joined by | or in a list, found 3"),
        ({"pos_att_type": ["c2p", "c2p"]}, "pos_att_type: expected each term once, found c2p|c2p"),
        ({"relative_attention": False}, "relative_attention: expected true with pos_att_type"),
        ({"position_biased_input": 1}, "position_biased_input must be true or false, found 1"),
        ({"position_buckets": 1.5}, "position_buckets must be an integer, found 1.5"),
        ({"position_buckets": 1}, "position_buckets: expected 0 or at least 2, found 1"),
        (
            {"max_relative_positions": 5},
            "max_relative_positions: expected more than 5 with position_buckets 8, found 5",
        ),
        ({"norm_rel_ebd": "rms"}, "norm_rel_ebd: expected none or layer_norm, found 'rms'"),
        ({"pooler_hidden_act": "mish"}, "pooler_hidden_act: expected one of tanh, relu, gelu, found 'mish'"),
        ({"pooler_hidden_size": 7}, "pooler_hidden_size: expected hidden_size, 48, found 7"),
        ({"conv_kernel_size": 4}, "conv_kernel_size: expected 0 or an odd number, found 4"),
        ({"conv_groups": 2}, "conv_groups: expected 1, found 2"),
    ],
)
def test_a_deberta_that_is_not_known_is_refused(changes, message):
    hf = {"model_type": "deberta-v2", "vocab_size": VOCABULARY} | CONFIGS["deberta-v2"]
    BertConfig.from_hf(hf)
    with pytest.raises(InputError) as error:
        BertConfig.from_hf(hf | changes)
    assert str(error.value).startswith("config.json: ") and message in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads 3 must divide num_attention_heads 4"),
        ({"num_key_value_heads": 0}, "num_key_value_heads must be a positive integer, found 0"),
        ({"classifier_pooling": "cls"}, "classifier_pooling: expected one of bos, mean, late, found 'cls'"),
        (
            {"rope_parameters": {"rope_type": "longrope"}},
            "rope_type: expected default, linear, dynamic, yarn, llama3, f",
        ),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}},
            "original_max_position_embeddings: expected a positive number for yarn, found None",
        ),
        ({"rope_scaling": {"type": "linear"}}, "factor: expected a positive number for linear, found None"),
    ],
)
def test_a_eurobert_that_is_not_known_is_refused(changes, message):
    hf = {"model_type": "eurobert", "vocab_size": VOCABULARY} | CONFIGS["eurobert"]
    assert BertConfig.from_hf(hf | {"rope_theta": 250000.0}).positions.rope_theta == 250000.0
    with pytest.raises(InputError) as error:
        BertConfig.from_hf(hf | changes)
    assert str(error.value).startswith("config.json: ") and message in str(error.value)


@pytest.mark.parametrize("family", ["dpr-question", "dpr-context"])
def test_the_vectors_of_dpr(tmp_path, family):
    torch.manual_seed(0)
    kind = getattr(transformers, FAMILIES[family].names.architectures["encoder"])
    model = kind(transformers.DPRConfig(vocab_size=VOCABULARY, **_BERT)).eval()
    model.save_pretrained(tmp_path / "theirs")
    inputs = batch(model, "encoder")
    ours = from_pretrained(tmp_path / "theirs", "sentence_embedding")
    assert ours.config.family == family
    assert relative(ours(**inputs).sentence_embedding, run(model, inputs).pooler_output.numpy()) < 1e-5
    check_round_trip(tmp_path, model)
    config = model.config.to_dict()
    with pytest.raises(InputError, match="projection_dim: expected 0, found 8: a dense layer"):
        BertConfig.from_hf(config | {"projection_dim": 8})


def test_a_deberta_with_talking_heads_is_refused():
    hf = {"model_type": "deberta", "vocab_size": VOCABULARY} | CONFIGS["deberta"]
    assert BertConfig.from_hf(hf | {"talking_head": False}).attention.key_bias is False
    with pytest.raises(InputError, match=r"config\.json: talking_head: expected False, found True: attention heads"):
        BertConfig.from_hf(hf | {"talking_head": True})


@pytest.mark.parametrize("family", ["deberta", "deberta-v2"])
def test_the_files_of_debertas_authors(tmp_path, family):
    """Their masked-LM head has names of its own, which no key says; other tensors are those of the pretraining."""
    model = oracle(family, "masked_lm", legacy=False)
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["legacy"], config["architectures"]
    path.write_text(json.dumps(config))
    (tmp_path / "model.safetensors").unlink()
    others = {"deberta.embeddings.position_embeddings.weight": torch.zeros(64, 48),
              "mask_predictions.dense.weight": torch.zeros(48, 48)}  # fmt: skip
    torch.save(model.state_dict() | others, tmp_path / "pytorch_model.bin")
    ours, inputs = from_pretrained(tmp_path, head="masked_lm"), batch(model, "masked_lm", padded=False)
    assert (ours.missing, ours.config.setting("legacy")) == ((), False)
    assert relative(ours(**inputs).logits, run(model, inputs).logits) < 1e-5


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])
def test_contacts_of_an_esm(tmp_path, padded):
    model = oracle("esm", "encoder")
    model.save_pretrained(tmp_path)
    inputs = batch(model, "encoder", padded)
    last = inputs["attention_mask"].sum(1) - 1
    inputs["input_ids"][np.arange(len(last)), last] = 2  # <eos>
    with torch.no_grad():
        expected = model.predict_contacts(
            **dict(zip(("tokens", "attention_mask"), tensors(inputs).values(), strict=True))
        )
    found = from_pretrained(tmp_path)(**inputs, output_attentions=True)
    assert found.contacts.shape == (3, max(LENGTHS) - 2, max(LENGTHS) - 2)
    assert relative(found.contacts, expected) < 1e-5 and len(found.to_tuple()) == 3


def test_the_speeds_of_an_esms_files_are_kept(tmp_path):
    """Files of transformers 4 have them in every layer, some rounded to float16; without them, they are computed."""
    model = oracle("esm", "masked_lm")
    model.save_pretrained(tmp_path)
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith("inv_freq")}
    speeds = model.esm.rotary_embeddings.inv_freq.half().float()
    layers = [f"esm.encoder.layer.{i}.attention.self.rotary_embeddings.inv_freq" for i in range(3)]
    (tmp_path / "model.safetensors").unlink()
    torch.save(state | dict.fromkeys(layers, speeds), tmp_path / "pytorch_model.bin")
    ours, inputs = from_pretrained(tmp_path), batch(model, "masked_lm", padded=False)
    assert ours.missing == () and np.array_equal(ours.params["encoder"]["inverse_frequencies"], speeds)
    plain = run(model, inputs).logits
    model.esm.rotary_embeddings.inv_freq.copy_(speeds)
    assert relative(ours(**inputs).logits, run(model, inputs).logits) < 1e-5 < relative(ours(**inputs).logits, plain)
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.warns(UserWarning, match="freshly initialised: esm.rotary_embeddings.inv_freq"):
        assert relative(from_pretrained(tmp_path)(**inputs).logits, plain) < 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_folding_model": True}, "is_folding_model: expected False, found True: ESMFold is not supported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"mask_token_id": None}, "mask_token_id must be a non-negative integer, found None"),
        ({"token_dropout": 1}, "token_dropout must be true or false, found 1"),
    ],
)
def test_an_esm_that_is_not_known_is_refused(changes, message):
    hf = {"model_type": "esm", "vocab_size": VOCABULARY} | CONFIGS["esm"]
    BertConfig.from_hf(hf)
    with pytest.raises(InputError) as error:
        BertConfig.from_hf(hf | changes)
    assert str(error.value).startswith("config.json: ") and message in str(error.value)


def test_heads_of_a_neobert_lie_together_in_one_matrix(tmp_path):
    model = oracle("neobert", "encoder")
    model.save_pretrained(tmp_path)
    rows = model.transformer_encoder[1].qkv.weight.detach().numpy().reshape(4, 3, 12, 48)
    attention = from_pretrained(tmp_path).params["encoder"]["layers"]["attention"]
    for part, name in enumerate(("query", "key", "value")):
        assert np.array_equal(attention[name]["kernel"][1].T, rows[:, part].reshape(48, 48))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rms_norm": False}, "rms_norm: expected True, found False"),
        ({"hidden_act": "gelu"}, "hidden_act: expected 'SwiGLU' or 'swiglu', found 'gelu'"),
        ({"ngpt": True}, "ngpt: expected False, found True"),
        ({"intermediate_size": 0}, "intermediate_size must be a positive integer, found 0"),
    ],
)
def test_a_neobert_that_is_not_known_is_refused(changes, message):
    hf = {"model_type": "neobert", "vocab_size": VOCABULARY} | CONFIGS["neobert"]
    assert BertConfig.from_hf(hf | {"hidden_act": "SwiGLU"}).intermediate_size == 72
    with pytest.raises(InputError) as error:
        BertConfig.from_hf(hf | changes)
    assert str(error.value).startswith("config.json: ") and message in str(error.value)


def test_a_roformer_with_another_table_of_positions_is_refused(tmp_path):
    model = oracle("roformer", "encoder")
    model.encoder.embed_positions.weight[3, 0] += 1
    model.save_pretrained(tmp_path)
    with pytest.raises(
        InputError, match=r"'roformer.encoder.embed_positions.weight': expected sinusoids as config.json"
    ):
        from_pretrained(tmp_path)


def test_the_files_of_nomicberts_authors(tmp_path):
    model = oracle("nomic_bert", "encoder")
    model.save_pretrained(tmp_path / "theirs")
    named = dict(model.state_dict())
    older = {}
    for name, tensor in named.items():
        if "k_proj" in name or "v_proj" in name:
            continue
        if "q_proj" in name:
            parts = [named[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            name, tensor = name.replace("self_attn.q_proj", "attn.Wqkv"), torch.cat(parts)
        for new, old in (
            ("layers.", "encoder.layers."), ("embeddings.LayerNorm", "emb_ln"), ("self_attn.o_proj", "attn.out_proj"),
            ("up_proj", "fc11"), ("gate_proj", "fc12"), ("down_proj", "fc2"), ("post_attention_layernorm", "norm1"),
            ("post_mlp_layernorm", "norm2"),
        ):  # fmt: skip
            name = name.replace(new, old)
        older[name] = tensor.contiguous()
    (tmp_path / "older").mkdir()
    config = {"model_type": "nomic_bert", "n_embd": 48, "n_layer": 3, "n_head": 4, "n_inner": 96, "n_positions": 64}
    config |= {"vocab_size": VOCABULARY, "rotary_emb_base": 1000, "layer_norm_epsilon": 1e-12}
    (tmp_path / "older" / "config.json").write_text(json.dumps(config))
    torch.save(older, tmp_path / "older" / "pytorch_model.bin")
    found, expected = (from_pretrained(tmp_path / name) for name in ("older", "theirs"))
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, found.params, expected.params)))
    inputs = batch(model, "encoder")
    assert relative(found(**inputs).last_hidden_state, run(model, inputs)[0]) < 1e-4


def test_windows_at_length_1024(tmp_path):
    model = oracle("modernbert", "encoder", max_position_embeddings=1024, local_attention=128)
    model.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    mask = (np.arange(1024) < [[1024], [700]]).astype(np.int32)
    ids = np.where(mask, np.random.default_rng(0).integers(2, VOCABULARY, mask.shape), 1).astype(np.int32)
    inputs = {"input_ids": ids, "attention_mask": mask}
    found, expected = ours(**inputs).last_hidden_state, run(model, inputs)[0].numpy()
    assert relative(found[mask > 0], expected[mask > 0]) < 1e-5


@pytest.mark.parametrize("family", ["roberta", "mpnet"])
def test_position_ids_are_rows_of_the_table(tmp_path, family):
    model = oracle(family, "encoder")
    model.save_pretrained(tmp_path)
    ours, ids = from_pretrained(tmp_path), batch(model, "encoder")["input_ids"][:1]
    for first in (0, 2, 5):
        places = first + np.arange(ids.shape[1], dtype=np.int32)[None]
        expected = run(model, {"input_ids": ids, "position_ids": places})[0]
        assert relative(ours(ids, position_ids=places).last_hidden_state, expected) < 1e-5
    rows = model.config.max_position_embeddings
    with pytest.raises(InputError, match=f"position_ids: expected 0 to {rows - 1}, found {rows}"):
        ours(ids, position_ids=places * 0 + rows)


@pytest.mark.parametrize("name", ["BertLMHeadModel", "RobertaForCausalLM", "ElectraForCausalLM"])
def test_a_language_model_that_sees_both_sides_is_a_masked_one(tmp_path, name):
    family = {"B": "bert", "R": "roberta", "E": "electra"}[name[0]]
    classes = FAMILIES[family].names.architectures
    model = oracle(family, "masked_lm")
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace(classes["masked_lm"], name))
    kind = getattr(transformers, name)
    inputs = batch(model, "masked_lm", padded=False)
    expected = run(kind.from_pretrained(tmp_path, attn_implementation="eager").eval(), inputs).logits
    ours = from_pretrained(tmp_path)
    assert ours.head == "masked_lm" and relative(ours(**inputs).logits, expected) < 1e-5
