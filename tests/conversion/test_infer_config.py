"""What config.json does not say is taken from the tensors or refused; what the tensors contradict is named."""

import numpy as np
import pytest
import safetensors.numpy
from random_models import WITH_LAYERS
from small_models import edit, equal, tensors_of, write_model

from bert_jax.conversion.huggingface import convert, load_pretrained
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "max_position_embeddings",
         "type_vocab_size", "embedding_size")  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", WITH_LAYERS)
def test_sizes_that_are_not_said_are_those_of_the_tensors(tmp_path, family):
    changes = {"embedding_size": 4} if family in ("electra", "albert") else {}
    config = write_model(tmp_path / "model", family, **changes)
    whole = load_pretrained(tmp_path / "model")
    keys = dict(FAMILIES[family].keys)
    shown = [keys[field] for field in SIZES if field in keys]
    if config.positions.kind in ("rotary", "alibi", "none"):
        shown.remove(keys["max_position_embeddings"])  # no tensor has it
    if family == "albert":  # tensors have the number of groups, not how often they are used
        shown.remove("num_hidden_layers")
        shown += ["num_hidden_groups", "inner_group_num"]
    edit(tmp_path / "model", **dict.fromkeys(shown))
    found = load_pretrained(tmp_path / "model")
    assert found.config == whole.config and equal(found.params, whole.params)


@pytest.mark.parametrize("size", [1, 10**9])
@pytest.mark.parametrize("field", SIZES[:-1])
def test_sizes_that_the_tensors_contradict(tmp_path, field, size):
    write_model(tmp_path / "model")
    edit(tmp_path / "model", **{field: size})
    with pytest.raises(
        InputError, match=rf"config.json: {field}: expected \d+, as in tensor '.*' of shape .* found {size}$"
    ):
        load_pretrained(tmp_path / "model")


@pytest.mark.parametrize(("field", "found"), [("num_hidden_groups", 1), ("inner_group_num", 3)])
def test_groups_of_layers_that_the_tensors_contradict(tmp_path, field, found):
    write_model(tmp_path / "model", "albert", num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2)
    edit(tmp_path / "model", **{field: found})
    with pytest.raises(InputError, match=f"{field}: expected 2, as in tensor '.*groups.1.*layers.1.*, found {found}$"):
        load_pretrained(tmp_path / "model")


@pytest.mark.parametrize(
    ("family", "key"),
    [("bert", "num_attention_heads"), ("roberta", "num_attention_heads"), ("distilbert", "n_heads"),
     ("albert", "num_hidden_layers")],
)  # fmt: skip
def test_what_no_tensor_shows_has_to_be_said(tmp_path, family, key):
    write_model(tmp_path / "model", family)
    edit(tmp_path / "model", **{key: None})
    with pytest.raises(InputError, match=f"config.json: expected {key}, which the weights do not imply, found none"):
        load_pretrained(tmp_path / "model")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("family", "field"),
    [(name, field) for name, kind in FAMILIES.items() for field in kind.required if field in kind.assumed],
)
def test_keys_for_which_transformers_has_a_default(tmp_path, caplog, family, field):
    kind = FAMILIES[family]
    key, value = kind.keys[field], kind.assumed[field]
    changes = {"embedding_size": 4} if family in ("electra", "albert") else {}
    write_model(tmp_path / "model", family, **changes)
    edit(tmp_path / "model", **{key: value})
    stated = load_pretrained(tmp_path / "model")
    edit(tmp_path / "model", **{key: None})
    assert load_pretrained(tmp_path / "model").config == stated.config
    assert f"config.json: found no {key}; using {value}, transformers' default" in caplog.text
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
    if family not in ("neobert", "nomic-moe"):  # which transformers does not have
        assert getattr(transformers.AutoConfig.for_model(kind.model_type or family), key) == value


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", WITH_LAYERS)
def test_a_family_that_is_not_said(tmp_path, family):
    """By architectures; else by names that only one family has, and the vocabulary's file where two share them."""
    head = "masked_lm" if family in ("bert", "roberta", "xlm-roberta", "data2vec-text", "ernie") else "encoder"
    changes = {"embedding_size": 4} if family in ("electra", "albert") else {}
    write_model(tmp_path / "model", family, head, **changes)
    whole = load_pretrained(tmp_path / "model")
    edit(tmp_path / "model", model_type=None)
    assert load_pretrained(tmp_path / "model").config == whole.config
    if family in ("camembert", "big_bird", "mt5"):
        return  # whose tensors and files are named as XLM-R's, BERT's or T5's
    edit(tmp_path / "model", architectures=None)
    if family == "xlm-roberta":
        (tmp_path / "model" / "sentencepiece.bpe.model").write_bytes(b"")
    found = load_pretrained(tmp_path / "model")
    assert (found.config, found.head) == (whole.config, head) and equal(found.params, whole.params)


def test_a_family_that_nothing_shows(tmp_path):
    write_model(tmp_path / "model", "roberta")
    edit(tmp_path / "model", model_type=None, architectures=None)
    with pytest.raises(InputError, match="neither architectures nor the names of the tensors say which of bert"):
        load_pretrained(tmp_path / "model")
    (tmp_path / "model" / "merges.txt").write_text("")
    assert load_pretrained(tmp_path / "model").config.family == "roberta"


def test_classes_are_those_of_the_classifier(tmp_path):
    write_model(tmp_path / "model", head="sequence_classification")
    edit(tmp_path / "model", id2label=None, label2id=None)
    assert load_pretrained(tmp_path / "model").config.num_labels == 3
    edit(tmp_path / "model", id2label={"0": "a", "1": "b"})
    with pytest.raises(InputError, match=r"expected 3 classes .* 'classifier.weight' of shape \[3, 8\], found 2"):
        load_pretrained(tmp_path / "model")
    # Another head has a classifier of its own.
    assert load_pretrained(tmp_path / "model", "token_classification").config.num_labels == 2


def test_a_padding_id_that_is_no_token(tmp_path):
    write_model(tmp_path / "model")
    edit(tmp_path / "model", pad_token_id=31)
    with pytest.raises(InputError, match="pad_token_id: expected less than vocab_size 31, found 31"):
        load_pretrained(tmp_path / "model")


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "model.", "module._orig_mod.", "_forward_module.model."])
@pytest.mark.parametrize(
    ("family", "head"),
    [("bert", "masked_lm"), ("bert", "encoder"), ("modernbert", "masked_lm"), ("modernbert", "encoder")],
)
def test_what_trainers_put_before_names(tmp_path, family, head, wrapper):
    write_model(tmp_path / "model", family, head)
    whole = load_pretrained(tmp_path / "model")
    wrapped = {f"{wrapper}{name}": tensor for name, tensor in tensors_of(tmp_path / "model").items()}
    wrapped["loss.weight"] = np.zeros(2, np.float32)  # a trainer's own
    safetensors.numpy.save_file(wrapped, tmp_path / "model" / "model.safetensors")
    found = load_pretrained(tmp_path / "model")
    assert equal(found.params, whole.params) and found.unused == ["loss.weight"]


def test_names_that_a_wrapper_makes_the_same(tmp_path):
    write_model(tmp_path / "model")
    tensors = tensors_of(tmp_path / "model")
    wrapped = {f"model.{name}": tensor for name, tensor in tensors.items()}
    wrapped |= {f"module.{name}": tensor for name, tensor in tensors.items()}
    safetensors.numpy.save_file(wrapped, tmp_path / "model" / "model.safetensors")
    with pytest.raises(InputError, match="found it under two names"):
        load_pretrained(tmp_path / "model")


def test_one_key_twice(tmp_path):
    write_model(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(path.read_text().replace('"hidden_act": "gelu"', '"hidden_act": "gelu", "hidden_act": "relu"'))
    with pytest.raises(InputError, match=r"config\.json: expected each key once, found 'hidden_act' twice"):
        load_pretrained(tmp_path / "model")


def test_convert_keeps_what_nothing_here_depends_on(tmp_path):
    write_model(tmp_path / "model", head="sequence_classification")
    edit(
        tmp_path / "model", finetuning_task="mnli", task_specific_params={"a": 1}, my_own_key=[1], torch_dtype="float16"
    )
    generation = tmp_path / "model" / "generation_config.json"
    generation.write_text('{"max_length": 7}')
    convert(tmp_path / "model", tmp_path / "new", lambda _: None)
    before, after = (load_pretrained(tmp_path / name) for name in ("model", "new"))
    kept = dict(before.config.carried)
    assert (
        kept["finetuning_task"] == "mnli"
        and kept["my_own_key"] == [1]
        and kept.items() <= dict(after.config.carried).items()
    )
    assert (tmp_path / "new" / "generation_config.json").read_text() == '{\n  "max_length": 7\n}\n'


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", WITH_LAYERS)
def test_a_head_size_that_the_tensors_contradict(tmp_path, family):
    """Hidden size 8 and a head of 4: the only one that is left of two."""
    config = write_model(tmp_path / "model", family, num_attention_heads=1, head_dim=4)
    assert load_pretrained(tmp_path / "model").config == config
    assert config.attention_width == 4
    edit(tmp_path / "model", head_dim=2**30)
    with pytest.raises(
        InputError, match=r"head_dim: expected \w+ \* head_dim = 4, as in tensor .* found 1 \* 1073741824"
    ):
        load_pretrained(tmp_path / "model")
    edit(tmp_path / "model", head_dim="4")
    with pytest.raises(InputError, match="head_dim must be a positive integer, found '4'"):
        load_pretrained(tmp_path / "model")
