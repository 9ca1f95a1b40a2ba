"""Directories of GLiNERs: read, written, and refused key by key; beside the original package where it is installed."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy
from gliners import HEAD, gliner, random_params, write_gliner

from bert_jax.cli import main
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
from bert_jax.conversion.model_tokenizer import open_tokenizer
from bert_jax.conversion.state_dict_writing import to_huggingface
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline

WITHOUT_ORIGINAL = "the original, which has no release for these transformers: pip install --no-deps gliner"


@pytest.fixture(scope="module")
def original(tmp_path_factory, tiny_tokenizer):
    return write_gliner(tmp_path_factory.mktemp("gliner") / "model", tiny_tokenizer)


@pytest.fixture
def model(original, tmp_path):
    return shutil.copytree(original, tmp_path / "model")


def edit_gliner(directory, encoder=None, **changes):
    path = directory / "gliner_config.json"
    content = json.loads(path.read_text()) | changes
    content["encoder_config"] = (content["encoder_config"] or {}) | encoder if encoder else content["encoder_config"]
    path.write_text(json.dumps(content))


def same(a, b):
    return jax.tree.structure(a) == jax.tree.structure(b) and all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert"])
def test_what_is_saved_is_read_bitwise(tmp_path, tiny_tokenizer, family):
    head = dataclasses.replace(HEAD, num_rnn_layers=2, max_types=7, embed_ent_token=False)
    config, params, tokenizer = gliner(tiny_tokenizer, family, head=head)
    save_pretrained(tmp_path / "model", config, "zero_shot_ner", params, tokenizer)
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert "gliner_config.json" in names and "config.json" not in names
    loaded = load_pretrained(tmp_path / "model")
    assert (loaded.head, loaded.missing, loaded.unused) == ("zero_shot_ner", [], [])
    assert loaded.config.gliner == dataclasses.replace(head, class_token_index=tokenizer.token_to_id("<<ENT>>"))
    assert loaded.config == config.replace(gliner=loaded.config.gliner)
    ours, theirs = (to_huggingface(config, "zero_shot_ner", part) for part in (params, loaded.params))
    assert same(ours, theirs)
    names = set(safetensors.numpy.load_file(tmp_path / "model" / "model.safetensors"))
    assert {"rnn.lstm.weight_hh_l1_reverse", "prompt_rep_layer.3.bias", "token_rep_layer.projection.weight"} < names
    assert any(name.startswith("token_rep_layer.bert_layer.model.") for name in names)
    assert {name.split(".")[0] for name in names} == {"token_rep_layer", "rnn", "span_rep_layer", "prompt_rep_layer"}


def test_the_encoder_alone_and_weights_of_pytorch(model):
    torch = pytest.importorskip("torch", reason="PyTorch writes the file; it is installed on Python 3.11 only")
    tensors = safetensors.numpy.load_file(model / "model.safetensors")
    torch.save({name: torch.from_numpy(tensor) for name, tensor in tensors.items()}, model / "pytorch_model.bin")
    whole = load_pretrained(model)
    (model / "model.safetensors").unlink()
    assert same(load_pretrained(model).params, whole.params)
    encoder = load_pretrained(model, "encoder")
    assert same(encoder.params["encoder"], whole.params["encoder"]) and encoder.config.gliner is None
    assert "rnn.lstm.bias_ih_l0" in encoder.unused


def test_other_keys_are_kept(model, tmp_path):
    edit_gliner(model, name="mine", lr_encoder="1e-5", model_name="elsewhere/encoder")
    assert main(["convert", str(model), str(tmp_path / "copy")]) == 0
    content = json.loads((tmp_path / "copy" / "gliner_config.json").read_text())
    assert (content["name"], content["lr_encoder"], content["model_name"]) == ("mine", "1e-5", "elsewhere/encoder")
    assert same(load_pretrained(tmp_path / "copy").params, load_pretrained(model).params)


def test_an_older_directory_takes_the_encoder_from_elsewhere(model, tmp_path, tiny_tokenizer):
    """Of 2024: no encoder_config, no ids and no tokenizer, but the name of the encoder."""
    expected = pipeline("zero-shot-ner", model)("The old man sat by the river", ["person"], threshold=0.0)
    base = tmp_path / "encoder"
    described = json.loads((model / "gliner_config.json").read_text())["encoder_config"]
    base.mkdir()
    tiny_tokenizer.save(base)
    (base / "config.json").write_text(json.dumps(described | {"vocab_size": tiny_tokenizer.vocab_size}))
    for path in model.iterdir():
        if path.name not in ("gliner_config.json", "model.safetensors"):
            path.unlink()
    edit_gliner(model, encoder_config=None, class_token_index=-1, vocab_size=-1, model_name=str(base))
    assert pipeline("zero-shot-ner", model)("The old man sat by the river", ["person"], threshold=0.0) == expected
    edit_gliner(model, model_name="nowhere/at-all")
    with pytest.raises(
        InputError, match="expected a tokenizer and encoder_config, or the encoder's directory as model"
    ):
        load_pretrained(model)
    loaded = load_pretrained(model, base=base)
    assert open_tokenizer(loaded).token_to_id("<<SEP>>") == tiny_tokenizer.vocab_size + 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"span_mode": "token_level"}, "span_mode: expected 'markerV0', found 'token_level'"),
        ({"labels_encoder": "BAAI/bge"}, "labels_encoder: .* found 'BAAI/bge': bi-encoders are not supported"),
        ({"labels_decoder": "gpt2"}, "labels_decoder: .* found 'gpt2': decoders of type names"),
        ({"relations_layer": "biaffine"}, "relations_layer: .* relation extraction is not supported"),
        ({"post_fusion_schema": "l2l"}, "post_fusion_schema: .* found 'l2l'"),
        ({"fuse_layers": True}, "fuse_layers: expected False, found True"),
        ({"words_splitter_type": "jieba"}, "words_splitter_type: expected 'whitespace', found 'jieba'"),
        ({"subtoken_pooling": "mean"}, "subtoken_pooling: expected first or last, found 'mean'"),
        ({"model_type": "gliner_bi_encoder_span"}, "model_type: expected 'gliner' or"),
        ({"max_width": 0}, "max_width: expected a positive integer, found 0"),
        ({"hidden_size": 13}, "hidden_size: expected an even number, for an LSTM in both directions, found 13"),
        ({"hidden_size": 14}, "does not have the shape that .* implies"),
        ({"num_rnn_layers": 2}, "expected a tensor 'rnn.lstm.weight_ih_l1', found none"),
        ({"dropout": "0.4"}, r"dropout: expected a rate in \[0, 1\), found '0.4'"),
        ({"sep_token": "<<ENT>>"}, "sep_token: expected another token than ent_token"),
        ({"encoder_config": [1]}, r"encoder_config: expected an object, found \[1\]"),
        ({"encoder": {"model_type": "xlnet"}}, "'xlnet'"),
    ],
)
def test_what_is_not_supported_is_named(model, changes, message):
    edit_gliner(model, **changes)
    with pytest.raises(InputError, match=message) as error:
        load_pretrained(model)
    assert "\n" not in str(error.value) and "model" in str(error.value)


def test_a_damaged_description(model, capsys):
    (model / "gliner_config.json").write_text('{"max_width": ')
    assert main(["tag", str(model), "the river", "--labels", "person"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bert-jax: ") and "gliner_config.json" in error and error.count("\n") == 1


def test_another_id_of_the_special_token(model):
    edit_gliner(model, class_token_index=7)
    with pytest.raises(
        InputError, match=r"class_token_index: expected .* the id of '<<ENT>>' in the tokenizer, found 7"
    ):
        pipeline("zero-shot-ner", model)


def test_it_is_not_exported(model, tmp_path, capsys):
    assert main(["export", str(model), "--format", "stablehlo", "--out", str(tmp_path / "out")]) == 2
    assert "found a GLiNER; --head encoder exports its encoder" in capsys.readouterr().err


def test_the_original_opens_what_is_saved(model):
    original = pytest.importorskip("gliner", reason=WITHOUT_ORIGINAL)
    theirs = original.GLiNER.from_pretrained(str(model), local_files_only=True).model
    tensors = safetensors.numpy.load_file(model / "model.safetensors")
    state = theirs.state_dict()
    assert state.keys() == tensors.keys()
    assert all(np.array_equal(state[name].numpy(), tensors[name]) for name in tensors)


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert"])
def test_scores_and_gradients_are_those_of_the_original(tmp_path, tiny_tokenizer, family):
    original = pytest.importorskip("gliner", reason=WITHOUT_ORIGINAL)
    write_gliner(tmp_path / "model", tiny_tokenizer, family)
    theirs = original.GLiNER.from_pretrained(str(tmp_path / "model"), local_files_only=True)
    texts = [["the", "old", "man", "sat", "under", "a", "tree", "by", "the", "river"], ["good", "dogs", "run"]]
    kinds = [["person", "a tree"], ["bird", "old man", "the"]]
    processor = theirs.data_processor
    ner = [[[1, 2, "person"], [6, 6, "a tree"]], [[0, 1, "the"]]]
    rows = [{"tokenized_text": words, "ner": found} for words, found in zip(texts, ner, strict=True)]
    batch = processor.collate_raw_batch(rows, entity_types=kinds)
    inputs = processor.tokenize_and_prepare_labels(batch, True)
    spans = {"text_lengths": batch["seq_length"], "span_idx": batch["span_idx"], "span_mask": batch["span_mask"]}
    output = theirs.model.eval()(**dict(inputs), **spans)
    output.loss.backward()
    model = from_pretrained(tmp_path / "model")
    ids, words = inputs["input_ids"].numpy(), inputs["words_mask"].numpy()
    positions = [np.flatnonzero(row) for row in words]
    types = [np.flatnonzero(row == theirs.config.class_token_index) for row in ids]
    arrays = {
        "input_ids": ids,
        "attention_mask": inputs["attention_mask"].numpy(),
        "word_positions": np.stack([np.pad(at, (0, 10 - len(at))) for at in positions]),
        "type_positions": np.stack([np.pad(at, (0, 3 - len(at))) for at in types]),
    }
    logits = np.asarray(model(**arrays).logits)
    reference = output.logits.detach().numpy()
    known = logits > -1e8
    assert known.sum() == 27 * 2 + 6 * 3
    error = np.abs(logits - reference)[known].max()
    assert error < 1e-5 * np.abs(reference[known]).max()
    labels = inputs["labels"].numpy().reshape(logits.shape)

    def loss(params):
        found = model.bert.apply(params, **arrays).logits
        losses = -labels * jax.nn.log_sigmoid(found) - (1 - labels) * jax.nn.log_sigmoid(-found)
        return jax.numpy.where(known, losses, 0).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(model.params)
    if all(0.0001 < p < 0.9999 for p in (1 / (1 + np.exp(-logits[known])))):  # the original clips probabilities
        assert float(value) == pytest.approx(float(output.loss), rel=1e-5)
    greatest = max(float(p.grad.abs().max()) for p in theirs.model.parameters() if p.grad is not None)
    ours = to_huggingface(model.config, model.head, jax.tree.map(np.asarray, gradient))
    for name, parameter in theirs.model.named_parameters():
        if parameter.grad is not None:
            reference = parameter.grad.numpy()
            tolerance = 1e-4 * np.abs(reference).max() + 1e-6 * greatest  # that of the keys' biases is 0 in theory
            np.testing.assert_allclose(ours[name], reference, rtol=0, atol=tolerance, err_msg=name)


def test_a_fresh_head_on_an_ordinary_encoder(write_small, tmp_path):
    loaded = load_pretrained(write_small(tmp_path / "bert", "encoder"), "zero_shot_ner")
    assert all("embeddings" not in name and "encoder" not in name for name in loaded.missing)
    assert same(jax.tree.map(np.shape, loaded.params), jax.tree.map(np.shape, random_params(loaded.config)))
