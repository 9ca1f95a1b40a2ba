"""Models for retrieval in the files of their authors, beside transformers or the published equations in PyTorch."""

import json

import jax
import numpy as np
import pytest

from bert_jax import from_pretrained
from bert_jax.compression.removal import keep_heads, keep_layers
from bert_jax.config import BertConfig
from bert_jax.conversion.state_dict_writing import to_huggingface
from bert_jax.errors import InputError
from bert_jax.jobs.lora import Lora
from bert_jax.modeling import Bert, Compute
from bert_jax.modeling.positions import alibi_slopes

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")

from published_models import (  # noqa: E402
    jina_bert,
    jina_shapes,
    nomic_moe,
    nomic_shapes,
    random_tensors,
    slopes_of,
)
from safetensors.torch import load_file  # noqa: E402
from test_hf_families import LENGTHS, VOCABULARY, batch, oracle, relative, run  # noqa: E402

GTE_FILE = {
    "architectures": ["NewModel"], "model_type": "new",
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
    "vocab_size": VOCABULARY, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 96, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 64, "type_vocab_size": 1, "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm",
    "position_embedding_type": "rope", "rope_theta": 20000, "rope_scaling": {"type": "ntk", "factor": 8.0},
    "logn_attention_scale": False, "logn_attention_clip1": False, "pack_qkv": True, "unpad_inputs": False,
    "use_memory_efficient_attention": False, "pad_token_id": 1, "classifier_dropout": 0.0,
}  # fmt: skip
MEAN = {"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True}
MODULES = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]


def write_files(directory, config, tensors):
    """A model directory in the layout of a model's authors."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    torch.save({name: tensor.detach().clone() for name, tensor in tensors.items()}, directory / "pytorch_model.bin")
    return directory


def write_sentence_transformers(
    directory, prompts, pooling=MEAN, transformer="sentence_transformers.models.Transformer"
):
    """The files that make a model directory one of sentence-transformers."""
    types = [transformer if kind == "Transformer" else f"sentence_transformers.models.{kind}" for kind, _ in MODULES]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (kind, (_, path)) in enumerate(zip(types, MODULES, strict=True))
    ]
    for name, content in {
        "modules.json": listed,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {"max_seq_length": 60, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": prompts, "similarity_fn_name": "cosine"},
    }.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(json.dumps(content))


def unit_mean(states, mask):
    """The mean of the tokens' vectors, scaled to unit length."""
    states, mask = np.asarray(states), np.asarray(mask)[..., None]
    mean = (states * mask).sum(1) / mask.sum(1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def renamed(tensors, rules, joined=()):
    """Tensors with parts of their names replaced, and some layers joined to one."""
    found = dict(tensors)
    for whole, parts in joined:
        for name in [name for name in found if f".{parts[0]}." in name]:
            names = [name.replace(f".{parts[0]}.", f".{part}.") for part in parts]
            found[name.replace(f".{parts[0]}.", f".{whole}.")] = torch.cat([found.pop(name) for name in names])
    for new, old in rules:
        found = {name.replace(new, old): tensor for name, tensor in found.items()}
    return found


def equal_trees(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


# --- GTE --------------------------------------------------------------------------------------------------------------


def gte(head="encoder", config=GTE_FILE, **changes):
    """A transformers model with the frequencies of the original code, and its tensors under the original names."""
    model = oracle("gte", head, **changes)
    encoder = model if head == "encoder" else model.gte
    size, factor = 12, config["rope_scaling"]["factor"]
    base = config["rope_theta"] * factor
    encoder.rotary_emb.inv_freq = 1 / base ** (torch.arange(0, size, 2).float() / size) / factor ** (2 / size)
    tensors = renamed(
        model.state_dict(),
        (("self_attn", "attention"), ("post_attention_layernorm", "attn_ln"), ("post_mlp_layernorm", "mlp_ln"),
         ("lm_head.layer_norm", "lm_head.norm"), ("gte.", "new."), ("layers.", "encoder.layer.")),
        (("qkv_proj", ("q_proj", "k_proj", "v_proj")), ("up_gate_proj", ("up_proj", "gate_proj"))),
    )  # fmt: skip
    return model, tensors


@pytest.mark.parametrize("head", ["encoder", "masked_lm", "sequence_classification"])
def test_the_files_of_gtes_authors(tmp_path, head):
    classes = {"masked_lm": "NewForMaskedLM", "sequence_classification": "NewForSequenceClassification"}
    model, tensors = gte(head)
    write_files(tmp_path / "theirs", GTE_FILE | {"architectures": [classes.get(head, "NewModel")]}, tensors)
    ours, inputs = from_pretrained(tmp_path / "theirs"), batch(model, head)
    assert (ours.config.family, ours.head, ours.missing) == ("gte", head, ())
    found, expected = ours(**inputs), run(model, inputs)
    name, at = ("logits", ...) if head == "sequence_classification" else ("logits", inputs["attention_mask"] > 0)
    name = "last_hidden_state" if head == "encoder" else name
    assert relative(getattr(found, name)[at], expected[name].numpy()[at]) < 1e-5
    ours.save_pretrained(tmp_path / "ours")  # in the layout of transformers, with the same angles
    again = type(model).from_pretrained(tmp_path / "ours", attn_implementation="eager").eval()
    assert relative(run(again, inputs)[name].numpy()[at], expected[name].numpy()[at]) < 1e-5
    assert equal_trees(from_pretrained(tmp_path / "ours").params, ours.params)


def test_a_gte_of_sentence_transformers(tmp_path):
    model, tensors = gte()
    write_files(tmp_path, GTE_FILE, tensors)
    write_sentence_transformers(tmp_path, {"query": "query: "})
    ours, inputs = from_pretrained(tmp_path), batch(model, "encoder")
    assert (ours.head, ours.settings.prompt("query"), ours.settings.max_length) == ("sentence_embedding", "query: ", 60)
    expected = unit_mean(run(model, inputs)[0], inputs["attention_mask"])
    assert relative(ours(**inputs).sentence_embedding, expected) < 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling: type: expected default, linear or ntk"),
        ({"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.6}}, "rope_scaling: mixed_b: expected none"),
        ({"rope_scaling": {"type": "ntk", "factor": 0}}, "rope_scaling: factor: expected a positive number, found 0"),
        ({"rope_theta": "x"}, "rope_theta must be a number, found 'x'"),
        ({"hidden_act": "silu"}, "hidden_act: expected 'gelu', found 'silu'"),
        ({"layer_norm_type": "rms_norm"}, "layer_norm_type: expected 'layer_norm', found 'rms_norm'"),
        ({"logn_attention_scale": True}, "logn_attention_scale: expected False, found True"),
        ({"position_embedding_type": "absolute"}, "position_embedding_type: expected 'rope' or 'rotary', found"),
    ],
)
def test_a_gte_that_is_not_known_is_refused(changes, message):
    assert BertConfig.from_hf(GTE_FILE).family == "gte"
    with pytest.raises(InputError) as error:
        BertConfig.from_hf(GTE_FILE | changes)
    assert str(error.value).startswith("config.json: ") and message in str(error.value)


# --- Models that transformers does not have ---------------------------------------------------------------------------


def rows(padded=True, segments=2):
    """Rows of three lengths, or of one."""
    generator = np.random.default_rng(1)
    lengths = np.array(LENGTHS if padded else (max(LENGTHS),) * 3)[:, None]
    mask = np.broadcast_to(np.arange(max(LENGTHS)) < lengths, (3, max(LENGTHS)))
    inputs = {"input_ids": np.where(mask, generator.integers(2, VOCABULARY, mask.shape), 0), "attention_mask": mask}
    if segments > 1:
        inputs["token_type_ids"] = (np.arange(max(LENGTHS)) >= lengths // 2) & mask
    return {name: array.astype(np.int32) for name, array in inputs.items()}


def check_published(directory, config, tensors, equations, head, padded=True):
    """Outputs, gradients and the round trip of a model, beside its equations in PyTorch."""
    ours = from_pretrained(write_files(directory / "theirs", config, tensors))
    assert (ours.head, ours.missing) == (head, ())
    inputs = rows(padded, config.get("type_vocab_size", 1))
    is_token = inputs["attention_mask"] > 0
    states, maps, logits = equations({name: torch.tensor(array) for name, array in inputs.items()})
    out = ours(**inputs, output_hidden_states=True, output_attentions=True)
    for found, state in zip(out.hidden_states, states, strict=True):
        assert relative(found[is_token], state.detach().numpy()[is_token]) < 1e-5
    for found, expected in zip(out.attentions, maps, strict=True):
        found, expected = (np.moveaxis(np.asarray(x), 2, 1)[is_token] for x in (found, expected.detach()))
        assert relative(found, expected) < 1e-5
    at = is_token if head == "masked_lm" else ...
    name, result = ("last_hidden_state", states[-1]) if logits is None else ("logits", logits)
    at = is_token if logits is None else at
    assert relative(getattr(out, name)[at], result.detach().numpy()[at]) < 1e-5
    plain = ours(**inputs)
    assert relative(getattr(plain, name)[at], getattr(out, name)[at]) < 1e-5
    check_gradients(ours, inputs, name, result, tensors, is_token)
    check_written(directory, ours, config, tensors)
    return ours


def check_gradients(ours, inputs, name, result, tensors, is_token):
    up = np.random.default_rng(2).standard_normal(result.shape).astype(np.float32)
    if up.shape[:2] == is_token.shape:
        up[~is_token] = 0
    (result * torch.tensor(up)).sum().backward()
    gradients = jax.jit(jax.grad(lambda params: (getattr(ours.bert.apply(params, **inputs), name) * up).sum()))
    named = to_huggingface(ours.config, ours.head, gradients(ours.params))
    used = {name: tensor.grad.numpy() for name, tensor in tensors.items() if tensor.grad is not None}
    largest = max(np.abs(gradient).max() for gradient in used.values())
    for name, gradient in used.items():
        tolerance = max(1e-4 * np.abs(gradient).max(), 1e-6 * largest)
        assert np.abs(named[name] - gradient).max() < tolerance, name


def check_written(directory, ours, config, tensors):
    ours.save_pretrained(directory / "ours")
    written = load_file(directory / "ours" / "model.safetensors")
    assert written.keys() == tensors.keys()
    assert all(torch.equal(written[name], tensor.detach()) for name, tensor in tensors.items())
    kept = json.loads((directory / "ours" / "config.json").read_text())
    for key, value in config.items():
        assert key in ("architectures", "auto_map", "num_labels") or kept[key] == value, key
    assert BertConfig.from_hf(kept).replace(pooler=ours.config.pooler) == ours.config  # without its tensors


# --- Jina BERT --------------------------------------------------------------------------------------------------------

JINA_FILE = {
    "model_type": "bert", "vocab_size": VOCABULARY, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "intermediate_size": 40, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 64, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "position_embedding_type": "alibi",
    "feed_forward_type": "geglu", "emb_pooler": "mean", "attn_implementation": "torch", "pad_token_id": 0,
    "num_labels": 1,
}  # fmt: skip
JINA_CODE = {
    "jina-bert": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel",
    "jina-bert-qk": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel",
}
JINA_HEADS = {"encoder": "JinaBertModel", "masked_lm": "JinaBertForMaskedLM",
              "sequence_classification": "JinaBertForSequenceClassification"}  # fmt: skip


def jina(family, head="encoder", **changes):
    """The config.json and tensors of a Jina BERT, and its equations."""
    hf = JINA_FILE | {"auto_map": {"AutoModel": JINA_CODE[family]}, "architectures": [JINA_HEADS[head]]} | changes
    described = hf | {"qk": family == "jina-bert-qk"}
    tensors = random_tensors(jina_shapes(described, head))
    return hf, tensors, lambda inputs: jina_bert(tensors, described, inputs, head)


@pytest.mark.oracle("family")
@pytest.mark.sampled(5)
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])
@pytest.mark.parametrize("head", JINA_HEADS)
@pytest.mark.parametrize("family", JINA_CODE)
def test_a_jina_bert(tmp_path, family, head, padded):
    hf, tensors, equations = jina(family, head)
    ours = check_published(tmp_path, hf, tensors, equations, head, padded)
    assert ours.config.family == family


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["reglu", "original"])
@pytest.mark.parametrize("family", JINA_CODE)
def test_other_feed_forward_layers_of_a_jina_bert(tmp_path, family, kind):
    hf, tensors, equations = jina(family, "masked_lm", feed_forward_type=kind)
    ours = check_published(tmp_path, hf, tensors, equations, "masked_lm")
    assert (ours.config.feed_forward.gated, ours.config.hidden_act) == (
        (True, "relu") if kind == "reglu" else (False, "gelu")
    )


@pytest.mark.parametrize("family", JINA_CODE)
def test_the_tensors_tell_which_jina_bert_it_is(tmp_path, family):
    """Whether the code is a file beside the weights, or that of the other layout."""
    hf, tensors, _ = jina(family)
    for i, code in enumerate(("modeling_bert.JinaBertModel", *JINA_CODE.values())):
        directory = write_files(tmp_path / str(i), hf | {"auto_map": {"AutoModel": code}}, tensors)
        assert from_pretrained(directory).config.family == family
    with pytest.raises(InputError, match="feed_forward_type: expected 'original', found 'geglu'"):
        BertConfig.from_hf({key: value for key, value in hf.items() if key not in ("auto_map", "architectures")})


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16, 20])
def test_slopes_of_alibi(heads):
    np.testing.assert_allclose(alibi_slopes(heads), slopes_of(heads), rtol=1e-6)


def test_a_jina_bert_of_sentence_transformers(tmp_path):
    hf, tensors, equations = jina("jina-bert")
    write_files(tmp_path, hf | {"architectures": ["JinaBertForMaskedLM"]}, tensors)  # as in jina-embeddings-v2-base-en
    write_sentence_transformers(tmp_path, {})
    ours, inputs = from_pretrained(tmp_path), rows()
    states, _, _ = equations({name: torch.tensor(array) for name, array in inputs.items()})
    expected = unit_mean(states[-1].detach(), inputs["attention_mask"])
    assert ours.head == "sentence_embedding" and relative(ours(**inputs).sentence_embedding, expected) < 1e-5


def test_packed_rows_of_a_jina_bert(tmp_path):
    """Distances within an example are the same wherever it is in a row."""
    hf, tensors, _ = jina("jina-bert-qk")
    ours = from_pretrained(write_files(tmp_path, hf, tensors))
    ids = np.random.default_rng(0).integers(2, VOCABULARY, (1, 20)).astype(np.int32)
    segments = np.where(np.arange(20) < 8, 1, 2)[None].astype(np.int32)
    packed = ours.bert.apply(ours.params, ids, segment_ids=segments).last_hidden_state
    apart = [ours(ids[:, part]).last_hidden_state for part in (slice(0, 8), slice(8, 20))]
    assert relative(packed, np.concatenate(apart, axis=1)) < 1e-5


def test_backends_that_have_no_alibi_are_refused():
    config = BertConfig.named("tiny", "jina-bert", vocab_size=31, attention_probs_dropout_prob=0.0)
    for backend, platform in (("fused", "tpu"), ("splash", "tpu"), ("cudnn", "gpu")):
        bert = Bert(config, compute=Compute(attention=backend, platform=platform, dtype="bfloat16"))
        with pytest.raises(InputError, match=f"attention={backend}: does not support positions of type alibi; use au"):
            jax.eval_shape(bert.apply, bert.abstract_params(), np.ones((1, 512), np.int32))


def test_heads_with_slopes_cannot_be_removed():
    config = BertConfig.named("tiny", "jina-bert", vocab_size=31)
    with pytest.raises(InputError, match="found one with positions of type alibi"):
        keep_heads(config, {}, np.zeros((2, 1), int))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_type": "swiglu"}, "feed_forward_type: expected one of geglu, reglu, original, found 'swiglu'"),
        ({"feed_forward_type": None}, "feed_forward_type: expected one of geglu, reglu, original, found None"),
    ],
)
def test_a_jina_bert_that_is_not_known_is_refused(changes, message):
    with pytest.raises(InputError, match=f"config.json: {message}"):
        BertConfig.from_hf(jina("jina-bert", feed_forward_type="geglu")[0] | changes)


# --- Nomic Embed v2 ---------------------------------------------------------------------------------------------------

NOMIC_FILE = {
    "model_type": "nomic_bert", "vocab_size": VOCABULARY, "n_embd": 48, "n_layer": 4, "n_head": 4, "n_inner": 40,
    "n_positions": 64, "activation_function": "gelu", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "attn_pdrop": 0.0,
    "rotary_emb_base": 10000, "type_vocab_size": 1, "pad_token_id": 1, "num_experts": 5, "moe_top_k": 2,
    "moe_every_n_layers": 2, "moe_normalize_expert_weights": False, "num_shared_experts": 0, "ffn_div": 1,
    "expert_choice_router": False, "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True, "prenorm": False,
    "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_scaling_factor": None, "embd_pdrop": 0.1,
    "router_aux_loss_coef": 0.1,
}  # fmt: skip
NOMIC_HEADS = {"encoder": "NomicBertModel", "masked_lm": "NomicBertForPreTraining"}


def nomic(head="encoder", **changes):
    """The config.json and tensors of a NomicBERT with experts, and its equations."""
    hf = NOMIC_FILE | {"architectures": [NOMIC_HEADS[head]]} | changes
    tensors = random_tensors(nomic_shapes(hf, head))
    return hf, tensors, lambda inputs: nomic_moe(tensors, hf, inputs, head)


@pytest.mark.oracle
@pytest.mark.sampled(5)
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])
@pytest.mark.parametrize("head", NOMIC_HEADS)
def test_a_nomic_bert_with_experts(tmp_path, head, padded):
    hf, tensors, equations = nomic(head)
    ours = check_published(tmp_path, hf, tensors, equations, head, padded)
    assert (ours.config.family, ours.config.has_experts) == ("nomic-moe", (False, True) * 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("layers", "every"), [(5, 2), (4, 3), (1, 2)])
def test_layers_in_incomplete_turns(tmp_path, layers, every):
    hf, tensors, equations = nomic(n_layer=layers, moe_every_n_layers=every, moe_top_k=3)
    check_published(tmp_path, hf, tensors, equations, "encoder")


@pytest.mark.slow
def test_unrolled_layers_with_experts():
    config = BertConfig.named("tiny", "nomic-moe", vocab_size=31, num_hidden_layers=5, hidden_dropout_prob=0.1)
    scanned, unrolled = (Bert(config, "masked_lm", Compute(layers=layers)) for layers in ("scan", "unroll"))
    params, ids = scanned.init(jax.random.key(0)), np.arange(24).reshape(2, 12)
    masked = {"masked_positions": np.array([[1, 3], [0, 5]]), "dropout_key": jax.random.key(1)}

    def loss(params, bert):
        return bert.apply(params, ids, output_last_hidden_state=False, **masked).logits.std()

    found, expected = (jax.jit(jax.value_and_grad(loss), static_argnums=1)(params, b) for b in (unrolled, scanned))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_nomic_bert_of_sentence_transformers(tmp_path):
    hf, tensors, equations = nomic()
    write_files(tmp_path, hf, tensors)
    write_sentence_transformers(tmp_path, {"query": "search_query: ", "passage": "search_document: "})
    ours, inputs = from_pretrained(tmp_path), rows(segments=1)
    states, _, _ = equations({name: torch.tensor(array) for name, array in inputs.items()})
    expected = unit_mean(states[-1].detach(), inputs["attention_mask"])
    assert ours.settings.prompt("passage") == "search_document: "
    assert relative(ours(**inputs).sentence_embedding, expected) < 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moe_top_k": 6}, "moe_top_k: expected at most num_experts, 5, found 6"),
        ({"moe_every_n_layers": 1}, "moe_every_n_layers: expected at least 2, as the first layer has no experts"),
        ({"moe_normalize_expert_weights": True}, "moe_normalize_expert_weights: expected False, found True"),
        ({"num_shared_experts": 1}, "num_shared_experts: expected 0, found 1"),
        ({"qkv_proj_bias": False}, "qkv_proj_bias: expected True, found False"),
        (
            {"num_experts": 0},
            "activation_function: expected 'swiglu', found 'gelu'",
        ),  # read as a NomicBERT without experts
    ],
)
def test_experts_that_are_not_known_are_refused(changes, message):
    with pytest.raises(InputError) as error:
        BertConfig.from_hf(NOMIC_FILE | changes)
    assert str(error.value).startswith("config.json: ") and message in str(error.value)


def test_what_counts_layers_is_refused_with_experts():
    config = BertConfig.named("tiny", "nomic-moe", vocab_size=31)
    with pytest.raises(InputError, match="expected a model without experts, found num_experts 8"):
        keep_layers(config, {}, [0])
    with pytest.raises(InputError, match=r"config\.lora: expected a model without experts"):
        Lora(rank=2, alpha=1, targets=("query",)).init({"encoder": {"moe_layers": {}}}, jax.random.key(0))
