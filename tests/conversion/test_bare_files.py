"""Files as people of PyTorch hold them, which PyTorch, Lightning and peft write: what opens computes the same."""

import argparse
import collections
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import bundles
import numpy as np
import pytest

from bert_jax import BertConfig, InputError, from_pretrained
from bert_jax.cli import main

torch = pytest.importorskip("torch", reason="PyTorch writes the files; it is installed on Python 3.11 only")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")

SIZES = {
    "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 20,
}  # fmt: skip
TOLD = {"num_attention_heads": 4, "hidden_act": "gelu", "layer_norm_eps": 1e-12}  # what no tensor tells
IDS = np.random.default_rng(0).integers(5, 40, (3, 9))
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *map(str, range(9))]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def config(**changes):
    return transformers.BertConfig(**SIZES | {"num_labels": 3} | changes)


def different(*models):
    """Gives all parameters other values than those of a new model, such as biases of zero."""
    for model in models:
        for parameter in model.parameters():
            if parameter.requires_grad:  # not so of sinusoids
                torch.nn.init.normal_(parameter, std=0.2)
    return models[0].eval()


class Classifier(torch.nn.Module):
    """A module of the user's own: an encoder, and a linear layer on its pooled output."""

    def __init__(self, name="fc", attribute="bert", pooler=True):
        super().__init__()
        self.attribute, self.name = attribute, name
        setattr(self, attribute, transformers.BertModel(config(), add_pooling_layer=pooler))
        setattr(self, name, torch.nn.Linear(32, 3))

    def encode(self, ids):
        return getattr(self, self.attribute)(ids)

    def forward(self, ids):
        return getattr(self, self.name)(self.encode(ids).pooler_output)


class Wrapper(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model


def save(tmp_path, content, name="model.pt"):
    torch.save(content, tmp_path / name)
    return tmp_path / name


def difference(ours, theirs) -> float:
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    return float(np.abs(np.asarray(ours) - theirs).max())


def opened(path, config=TOLD, **settings):
    return from_pretrained(path, config=config, dtype="float32", **settings)


def states_of(model):
    with torch.no_grad():
        return model(torch.tensor(IDS)).last_hidden_state


def logits_of(model):
    with torch.no_grad():
        found = model(torch.tensor(IDS))
    return getattr(found, "logits", found)


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.bin", "last.ckpt", "model.safetensors"])
def test_a_state_dict_in_a_file_of_any_name(tmp_path, name):
    model = different(transformers.BertModel(config()))
    if name.endswith("safetensors"):
        save_file = pytest.importorskip("safetensors.torch").save_file
        save_file({key: value.clone() for key, value in model.state_dict().items()}, tmp_path / name)
    else:
        save(tmp_path, model.state_dict(), name)
    bert = opened(tmp_path / name)
    assert bert.head == "encoder" and difference(bert(IDS).last_hidden_state, states_of(model)) < 2e-5


def trainers(model):
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.tensor(IDS)).logits.sum().backward()
    optimizer.step()
    yield {"epoch": 3, "model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict()}
    settings = argparse.Namespace(lr=1e-4, sizes={1, 2}, when=np.float64(3.5), table=np.arange(3))
    yield {"args": settings, "best": np.float32(0.5), "optimizer": optimizer, "state_dict": model.state_dict()}
    yield {"module": model.state_dict(), "optimizer": None, "ds_version": "0.17", "buffer_names": []}
    yield {"step": torch.tensor(3), "model": {"state": 1} | model.state_dict()}
    yield {"app": {"model": model.state_dict(), "optim": optimizer.state_dict()}}
    yield {"bert_of_mine": model.state_dict(), "optimizer": optimizer.state_dict()}


@pytest.mark.parametrize("number", range(6))
def test_training_dictionaries(tmp_path, number):
    model = different(transformers.BertForSequenceClassification(config()))
    path = save(tmp_path, list(trainers(model))[number])
    bert = opened(path)
    assert bert.head == "sequence_classification" and bert.config.num_labels == 3
    assert difference(bert(IDS).logits, logits_of(model)) < 2e-5


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_settings_beside_the_weights_run_no_code(tmp_path, protocol):
    class Settings:
        def __reduce__(self):
            return (tmp_path / "witness").touch, ()

    model = different(transformers.BertModel(config()))
    content = {"hyper_parameters": Settings(), "state_dict": model.state_dict(), "callbacks": {"a": Settings()}}
    torch.save(content, tmp_path / "model.ckpt", pickle_protocol=protocol)
    assert difference(opened(tmp_path / "model.ckpt")(IDS).last_hidden_state, states_of(model)) < 2e-5
    assert not (tmp_path / "witness").exists()
    torch.load(tmp_path / "model.ckpt", weights_only=False)  # the payload does what it says where it is let
    assert (tmp_path / "witness").exists()


def wrapped(kind, model):
    match kind:
        case "torch.compile":
            return torch.compile(model)
        case "DataParallel":
            return torch.nn.DataParallel(model)
        case "Lightning's model":
            return Wrapper(model)
        case "DataParallel of torch.compile of a wrapper":
            return torch.nn.DataParallel(torch.compile(Wrapper(model)))
        case "torch.compile inside":
            model.bert = torch.compile(model.bert)
            return torch.nn.DataParallel(Wrapper(model))
        case "checkpointed layers":
            wrapper = pytest.importorskip("torch.distributed.algorithms._checkpoint.checkpoint_wrapper")
            for number, layer in enumerate(model.bert.encoder.layer):
                model.bert.encoder.layer[number] = wrapper.CheckpointWrapper(layer)
            return model
    raise AssertionError(kind)


KINDS = ["torch.compile", "DataParallel", "Lightning's model", "DataParallel of torch.compile of a wrapper",
         "torch.compile inside", "checkpointed layers"]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_prefixes_of_wrappers(tmp_path, kind):
    model = different(transformers.BertForMaskedLM(config()))
    expected = logits_of(model)
    names = {name.replace("._checkpoint_wrapped_module", ""): tensor for name, tensor in model.state_dict().items()}
    bert = opened(save(tmp_path, wrapped(kind, model).state_dict()))
    assert bert.head == "masked_lm" and names and difference(bert(IDS).logits, expected) < 2e-5


@pytest.mark.parametrize("attribute", ["bert", "encoder", "backbone", "model", "plm"])
@pytest.mark.parametrize("name", ["classifier", "fc", "head"])
def test_a_linear_layer_of_the_users_own_becomes_the_head(tmp_path, attribute, name, caplog):
    model = different(Classifier(name, attribute))
    bert = opened(save(tmp_path, Wrapper(model).state_dict()))
    assert (bert.head, bert.config.num_labels) == ("sequence_classification", 3)
    assert difference(bert(IDS).logits, logits_of(model)) < 2e-5
    assert f"{name}.weight [3, 32] is read as the classifier of sequence classification" in caplog.text
    encoder = opened(tmp_path / "model.pt", head="encoder")
    assert difference(encoder(IDS).last_hidden_state, model.encode(torch.tensor(IDS)).last_hidden_state) < 2e-5


def heads_that_do_not_fit():
    without = Classifier(pooler=False)
    wide = Classifier()
    wide.fc = torch.nn.Linear(64, 3)
    deep = Classifier()
    deep.head = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    projection = Classifier("projection")
    return {"no pooler": without, "wide": wide, "two layers": deep, "a projection": projection}


@pytest.mark.parametrize("kind", ["no pooler", "wide", "two layers", "a projection"])
def test_other_heads_are_left_out_by_name(tmp_path, kind, caplog):
    model = different(heads_that_do_not_fit()[kind])
    bert = opened(save(tmp_path, model.state_dict()))
    expected = model.encode(torch.tensor(IDS)).last_hidden_state
    assert bert.head == "encoder" and difference(bert(IDS).last_hidden_state, expected) < 2e-5
    left_out = next(line for line in caplog.messages if "left out: " in line)
    assert ("projection.weight" if kind == "a projection" else "fc.weight") in left_out


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("BertForPreTraining", "pretraining"),
        ("BertForMaskedLM", "masked_lm"),
        ("BertForNextSentencePrediction", "next_sentence"),
        ("BertForQuestionAnswering", "question_answering"),
        ("BertForSequenceClassification", "sequence_classification"),
        ("BertForTokenClassification", "token_classification"),
    ],
)
def test_the_tensors_tell_the_head(tmp_path, kind, head):
    model = different(getattr(transformers, kind)(config(num_labels=2 if "Question" in kind else 3)))
    bert = opened(save(tmp_path, model.state_dict()))
    assert bert.head == head
    outputs, expected = bert(IDS), model(torch.tensor(IDS))
    names = {"pretraining": "prediction_logits", "question_answering": "start_logits"}
    name = names.get(head, "logits")
    assert difference(getattr(outputs, name), expected[name]) < 2e-5


FAMILIES = {
    "Roberta": {"pad_token_id": 1, "type_vocab_size": 1},
    "XLMRoberta": {"pad_token_id": 1, "type_vocab_size": 1},
    "Electra": {"embedding_size": 16},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "MPNet": {},
    "Albert": {"embedding_size": 16},
    "MegatronBert": {},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "ModernBert": {"local_attention": 4, "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prefix", ["", "bert.", "net.encoder."])
def test_other_families_in_a_wrapper(tmp_path, family, prefix):
    """A module calls its encoder `bert`, whatever its family is."""
    settings = (SIZES if family != "DistilBert" else {"vocab_size": 40, "max_position_embeddings": 20}) | FAMILIES[
        family
    ]
    theirs = getattr(transformers, f"{family}Config")(**settings)
    model = different(getattr(transformers, f"{family}Model")(theirs))
    path = save(tmp_path, {f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()})
    if family in ("DebertaV2", "ModernBert"):
        with pytest.raises(InputError, match=r"expected the config\.json of the model \(config\)"):
            opened(path)
    else:
        told = TOLD | {"layer_norm_eps": getattr(theirs, "layer_norm_eps", 1e-12)}
        told |= {"hidden_act": getattr(theirs, "hidden_act", "gelu")}
        if family == "Albert":
            told |= {"num_hidden_layers": 2}
        bert = opened(path, told)
        assert difference(bert(IDS).last_hidden_state, states_of(model)) < 1e-4
    theirs.save_pretrained(tmp_path / "config")
    for given in (tmp_path / "config", tmp_path / "config/config.json", theirs.to_dict()):
        assert difference(opened(path, given)(IDS).last_hidden_state, states_of(model)) < 1e-4


MORE_FAMILIES = FAMILIES | {
    "RoFormer": {"embedding_size": 32},
    "BigBird": {"attention_type": "original_full", "pad_token_id": 0, "sep_token_id": 3},
    "RobertaPreLayerNorm": {"pad_token_id": 1, "type_vocab_size": 1},
    "Deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "MobileBert": {"embedding_size": 8, "intra_bottleneck_size": 16, "true_hidden_size": 16},
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("kind", "head"),
    [("ForSequenceClassification", "sequence_classification"), ("ForTokenClassification", "token_classification"),
     ("ForMaskedLM", "masked_lm")],
)  # fmt: skip
@pytest.mark.parametrize("family", MORE_FAMILIES)
def test_heads_of_other_families_beside_their_config(tmp_path, caplog, family, kind, head):
    settings = SIZES if family != "DistilBert" else {"vocab_size": 40, "max_position_embeddings": 20}
    theirs = getattr(transformers, f"{family}Config")(**settings | MORE_FAMILIES[family], num_labels=3)
    model = different(getattr(transformers, f"{family}{kind}")(theirs))
    given = theirs.to_dict() | {"architectures": None}
    path = save(tmp_path, model.state_dict())
    if (family, head) == ("ModernBert", "token_classification"):  # the tensors are those of a sequence classifier
        assert opened(path, given).head == "sequence_classification"
        assert "is read as the classifier of sequence classification, which reads each text" in caplog.text
        bert = opened(path, given, head=head)
    else:
        bert = opened(path, given)
    assert bert.head == head
    with torch.no_grad():
        expected = model(torch.tensor(IDS)).logits
    assert difference(bert(IDS).logits, expected) < 1e-4 * max(1, float(expected.abs().max()))


def test_what_the_tensors_do_not_tell_is_asked_for_in_one_message(tmp_path):
    path = save(tmp_path, transformers.BertModel(config()).state_dict())
    with pytest.raises(InputError) as caught:
        from_pretrained(path)
    message = str(caught.value)
    assert "expected num_attention_heads, hidden_act, layer_norm_eps (config) and the vocabulary (tokenizer)" in message
    assert "num_attention_heads=1,hidden_act=gelu,layer_norm_eps=1e-12" in message and "\n" not in message
    with pytest.raises(InputError, match="expected hidden_act, layer_norm_eps"):
        opened(path, {"num_attention_heads": 4})
    with pytest.raises(InputError, match=r"hidden_size: expected 32, as in tensor .* found 64"):
        opened(path, TOLD | {"hidden_size": 64})
    model = different(transformers.DistilBertModel(transformers.DistilBertConfig(vocab_size=40, dim=32, n_heads=4)))
    with pytest.raises(InputError, match=r"expected n_heads, activation \(config\)"):
        from_pretrained(save(tmp_path, model.state_dict()))


def test_layers_with_more_than_the_family_has_are_refused(tmp_path):
    """Without them the outputs would be others: relative positions, adapters, cross-attention."""
    state = transformers.BertModel(config()).state_dict()
    state["encoder.layer.1.attention.self.distance_embedding.weight"] = torch.ones(39, 8)
    path = save(tmp_path, state)
    assert "expected the layers of a bert, found a tensor 'bert.encoder.layer.1.attention.self" in refused(
        path, config=TOLD
    )
    assert "no such model directory" in refused(tmp_path / "absent.pt", config=TOLD)


def test_a_config_of_ours_and_the_files_beside(tmp_path):
    model = different(transformers.BertForSequenceClassification(config()))
    path = save(tmp_path, model.state_dict())
    ours = BertConfig(**SIZES, num_labels=3, hidden_act="gelu", layer_norm_eps=1e-12)
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    bert = opened(path, ours)
    assert difference(bert(IDS).logits, logits_of(model)) < 2e-5
    assert bert.tokenizer is not None and bert.tokenizer.encode("a b", 8) == [5, 6]
    config(id2label={0: "no", 1: "maybe", 2: "yes"}).save_pretrained(tmp_path)
    bert = from_pretrained(path, dtype="float32")
    assert bert.config.id2label == ("no", "maybe", "yes")
    assert difference(bert(IDS).logits, logits_of(model)) < 2e-5
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "vocab.txt").rename(tmp_path / "elsewhere" / "words.txt")
    assert opened(path, ours).tokenizer is None
    assert opened(path, ours, tokenizer=tmp_path / "elsewhere" / "words.txt").tokenizer.vocab_size == 40
    with pytest.raises(InputError, match="expected a vocabulary file, or a directory with a tokenizer"):
        opened(path, ours, tokenizer=tmp_path / "absent")


def test_the_config_of_the_base_model_with_a_head_of_the_users_own(tmp_path):
    """The folder of a pretrained BERT names the class BertForMaskedLM."""
    model = different(Classifier("classifier"))
    described = config(num_labels=2).to_dict() | {"architectures": ["BertForMaskedLM"]}
    (tmp_path / "base").mkdir()
    (tmp_path / "base/config.json").write_text(json.dumps(described))
    bert = opened(save(tmp_path, model.state_dict()), tmp_path / "base")
    assert bert.head == "sequence_classification" and bert.config.num_labels == 3
    assert difference(bert(IDS).logits, logits_of(model)) < 2e-5


def test_the_verb(tmp_path, capsys):
    model = different(Classifier())
    path = save(tmp_path, {"model_state_dict": torch.nn.DataParallel(model).state_dict(), "epoch": 2})
    (tmp_path / "words").mkdir()
    (tmp_path / "words/vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    told = "num_attention_heads=4,hidden_act=gelu,layer_norm_eps=1e-12"
    options = ["--config", told, "--tokenizer", str(tmp_path / "words/vocab.txt")]
    assert main(["convert", str(path), str(tmp_path / "out"), *options]) in (0, None)
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert float((logits_of(theirs) - logits_of(model)).abs().max()) == 0.0
    assert (tmp_path / "out/vocab.txt").exists() or (tmp_path / "out/tokenizer.json").exists()
    assert main(["convert", str(path), str(tmp_path / "ids"), "--config", told]) in (0, None)
    assert "no tokenizer: the model takes token ids" in capsys.readouterr().out
    assert main(["convert", str(path), str(tmp_path / "other")]) == 2
    assert "expected num_attention_heads, hidden_act, layer_norm_eps (config)" in capsys.readouterr().err
    assert main(["convert", str(path), str(tmp_path / "other"), "--config", "a=1,b"]) == 2


def refused(path, **settings) -> str:
    with pytest.raises(InputError) as caught:
        from_pretrained(path, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_whole_model_is_named_with_the_way_out(tmp_path):
    model = transformers.BertModel(config())
    for content in (model, {"model": model, "epoch": 1}):
        message = refused(save(tmp_path, content))
        assert "modeling_bert.BertModel" in message and "save model.state_dict()" in message
    torch.save(model, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert "save model.state_dict()" in refused(tmp_path / "old.pt")


def test_parts_of_a_distributed_checkpoint_name_what_to_run(tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    model = different(transformers.BertModel(config()))
    (folder := tmp_path / "fsdp").mkdir()
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder, no_dist=True)
    for place in (folder, tmp_path):
        assert f"dcp_to_torch {folder} model.pt` (dcp_to_torch_save)" in refused(place)
    dcp_to_torch_save(folder, tmp_path / "model.pt")
    assert difference(opened(tmp_path / "model.pt")(IDS).last_hidden_state, states_of(model)) < 2e-5


def test_parts_of_deepspeed_name_what_to_run(tmp_path):
    model = transformers.BertModel(config())
    empty = collections.OrderedDict((name, torch.empty(0)) for name in model.state_dict())
    (tmp_path / "global_step3").mkdir()
    path = save(tmp_path / "global_step3", {"module": empty}, "zero_pp_rank_0_mp_rank_00_model_states.pt")
    for place in (path, tmp_path):
        message = refused(place, config=TOLD if place == path else None)
        assert f"run `python zero_to_fp32.py . OUT` in {tmp_path}," in message
    other = save(tmp_path, {"module": empty}, "part.pt")
    assert "zero_to_fp32.py" in refused(other)  # and not the question of the number of heads
    other.unlink()
    path.unlink()
    whole = save(tmp_path / "global_step3", {"module": model.state_dict()}, "mp_rank_00_model_states.pt")
    assert f"open {whole}" in refused(tmp_path)
    assert opened(whole).head == "encoder"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tf_model.h5", b"\x89HDF\r\n\x1a\n", r"Keras' weights .* from_tf=True"),
        ("model.onnx", b"\x08\x08", "an ONNX graph"),
        ("model.gguf", b"GGUF", "weights in GGUF"),
        ("saved_model.pb", b"\x08", "a SavedModel"),
    ],
)
def test_other_kinds_are_named_with_the_way_out(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    config().save_pretrained(tmp_path)
    for place in (tmp_path, tmp_path / name):
        assert re.search(said, refused(place))
    (tmp_path / "config.json").unlink()
    assert re.search(said, refused(tmp_path))


def test_a_tensorflow_checkpoint_of_objects_without_a_config(tmp_path):
    graph = bundles.entry(7, (), 0, 8, 0)
    index = bundles.table([(b"", bundles.header()), (b"_CHECKPOINTABLE_OBJECT_GRAPH", graph)])
    (tmp_path / "ckpt-1.index").write_bytes(index)
    (tmp_path / "ckpt-1.data-00000-of-00001").write_bytes(bytes(8))
    assert "found an object-based one (tf.train.Checkpoint or Keras); save the model's variables" in refused(tmp_path)


def test_a_folder_with_one_file_of_weights_and_no_config(tmp_path):
    path = save(tmp_path, transformers.BertModel(config()).state_dict())
    assert f"to open that file, name it: {path}" in refused(tmp_path)
    (tmp_path / "notes.pt").write_text("not weights")
    assert "found a file of another kind" in refused(tmp_path / "notes.pt")


def test_what_is_no_encoder_or_several(tmp_path):
    state = transformers.BertModel(config()).state_dict()
    assert "expected the tensors of a BERT" in refused(save(tmp_path, torch.nn.Linear(3, 3).state_dict()))
    both = {f"{tower}.{name}": tensor for tower in ("query", "passage") for name, tensor in state.items()}
    assert "expected one encoder, found 2, whose tensors begin with 'passage.', 'query.'" in refused(
        save(tmp_path, both)
    )
    assert "expected one state dict" in refused(save(tmp_path, {"teacher": state, "student": state}))


def test_of_two_files_in_a_directory_the_one_that_transformers_prefers_is_read(tmp_path, caplog):
    first, second = (different(transformers.BertModel(config())) for _ in range(2))
    first.save_pretrained(tmp_path)
    torch.save(second.state_dict(), tmp_path / "pytorch_model.bin")
    bert = from_pretrained(tmp_path, dtype="float32")
    theirs = transformers.BertModel.from_pretrained(tmp_path).eval()
    assert difference(bert(IDS).last_hidden_state, states_of(theirs)) < 2e-5
    said = [line for line in caplog.messages if "model.safetensors is read" in line]
    assert len(said) == 1 and said[0].endswith("pytorch_model.bin")


@pytest.mark.slow
def test_a_checkpoint_of_lightning(tmp_path):
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("Lightning writes the file")
    script = pathlib.Path(__file__).with_name("train_with_lightning.py")
    subprocess.run([sys.executable, script, tmp_path], check=True, stderr=subprocess.PIPE)
    bert = opened(tmp_path / "best.ckpt")
    assert bert.head == "sequence_classification"
    assert np.abs(bert(IDS).logits - np.load(tmp_path / "logits.npy")).max() < 2e-5


def test_files_of_peft(tmp_path):
    peft = pytest.importorskip("peft", reason="peft writes the files")
    base = different(transformers.BertForSequenceClassification(config()))
    base.save_pretrained(tmp_path / "base")
    described = peft.LoraConfig(task_type="SEQ_CLS", r=2, lora_alpha=8, target_modules=["query", "value"])
    model = peft.get_peft_model(base, described)
    different(model)
    model.save_pretrained(tmp_path / "adapter")
    expected = logits_of(model)
    message = refused(save(tmp_path, model.state_dict()), config=TOLD)
    assert "an adapter of peft" in message and "merge_and_unload().state_dict()" in message
    assert "an adapter of peft" in refused(tmp_path / "adapter/adapter_model.safetensors", config=TOLD)
    merged = model.merge_and_unload()
    assert difference(opened(save(tmp_path, merged.state_dict()))(IDS).logits, expected) < 2e-5
