"""Models for retrieval in the files of their authors, beside transformers or the published equations in PyTorch."""

import json

import jax
import numpy as np
import pytest

from bert_jax import from_pretrained
from bert_jax.config import BertConfig
from bert_jax.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")

from test_hf_families import VOCABULARY, batch, oracle, relative, run  # noqa: E402

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
