"""Encoder-decoders beside transformers' EncoderDecoderModel: logits, losses, round trips, and refusals."""

import json

import jax
import numpy as np
import pytest
import safetensors.numpy
from encoder_decoders import IDS, SHAPES, SIZE, saved, sources, targets, theirs
from small_models import edit, equal, tensors_of

from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.conversion.encoder_decoder import load_encoder_decoder, save_encoder_decoder
from bert_jax.conversion.generation_settings import GenerationSettings
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained, saved_head
from bert_jax.errors import InputError
from bert_jax.modeling import Bert, Compute, EncoderDecoder


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("encoder_decoders")


@pytest.mark.oracle
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SHAPES)
def test_the_logits_are_those_of_transformers(name, root):
    torch = pytest.importorskip("torch")

    model = theirs(name)
    loaded = load_encoder_decoder(saved(root, name))
    ids, mask = sources()
    written, real = targets()
    with torch.no_grad():
        expected = model(
            input_ids=torch.tensor(ids, dtype=torch.long),
            attention_mask=torch.tensor(mask),
            decoder_input_ids=torch.tensor(written, dtype=torch.long),
        ).logits.numpy()
    found = jax.jit(loaded.model.apply)(loaded.params, ids, mask, written).logits
    np.testing.assert_allclose(np.asarray(found)[real], expected[real], rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_losses_are_those_of_torch(smoothing, root):
    torch = pytest.importorskip("torch")

    loaded = load_encoder_decoder(saved(root, "bert_deep"))
    ids, mask = sources()
    written, real = targets()
    labels = np.roll(written, -1, axis=1)
    logits = np.asarray(loaded.model.apply(loaded.params, ids, mask, written).logits)
    found = loaded.model.apply(loaded.params, ids, mask, written, labels=labels, label_smoothing=smoothing)
    flat = torch.tensor(logits).reshape(-1, 60), torch.tensor(labels, dtype=torch.long).reshape(-1)
    expected = torch.nn.functional.cross_entropy(*flat, reduction="none", label_smoothing=smoothing)
    np.testing.assert_allclose(np.asarray(found.losses)[real], expected.reshape(labels.shape)[real], rtol=1e-4)
    plain = torch.nn.functional.cross_entropy(*flat, reduction="none")
    np.testing.assert_allclose(np.asarray(found.cross_entropies)[real], plain.reshape(labels.shape)[real], rtol=1e-4)
    assert np.array_equal(np.asarray(found.correct)[real] > 0, (logits.argmax(-1) == labels)[real])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layers", ["scan", "unroll"])
def test_dropout_is_random_in_each_part_and_layers_may_be_unrolled(layers):
    config = BertConfig.named("tiny", "bert", **SIZE)
    model = EncoderDecoder(config, config, Compute(layers=layers))
    params = model.init(jax.random.key(0))
    ids, mask = sources()
    written, _ = targets()
    plain = model.apply(params, ids, mask, written).logits
    np.testing.assert_allclose(
        plain, EncoderDecoder(config, config).apply(params, ids, mask, written).logits, atol=1e-5
    )
    first, again, other = (
        model.apply(params, ids, mask, written, dropout_key=jax.random.key(seed)).logits for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again) and not np.allclose(first, other) and not np.allclose(first, plain)


def test_a_decoder_does_not_see_later_tokens_nor_padding_of_the_source(root):
    loaded = load_encoder_decoder(saved(root, "bert"))
    ids, mask = sources()
    written, _ = targets()
    logits = np.asarray(loaded.model.apply(loaded.params, ids, mask, written).logits)
    changed = written.copy()
    changed[:, 4:] = 7
    other = np.where(mask > 0, ids, 9)
    found = np.asarray(loaded.model.apply(loaded.params, other, mask, changed).logits)
    np.testing.assert_allclose(found[:, :4], logits[:, :4], atol=1e-5)
    assert not np.allclose(found[:, 4:], logits[:, 4:], atol=1e-2)


@pytest.mark.parametrize("name", SHAPES)
def test_a_round_trip_changes_no_bit(name, root, tmp_path):
    before = saved(root, name)
    loaded = load_encoder_decoder(before)
    save_encoder_decoder(tmp_path / "again", loaded.model, loaded.params, loaded.settings)
    first, second = tensors_of(before), tensors_of(tmp_path / "again")
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[tensor], second[tensor]) for tensor in first)
    again = load_encoder_decoder(tmp_path / "again")
    assert again.settings == loaded.settings and again.model.decoder_config.family == loaded.model.config.family
    assert equal(again.params, loaded.params)


@pytest.mark.parametrize("name", ["bert_narrow", "roberta"])
def test_transformers_opens_what_is_saved(name, root, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    loaded = load_encoder_decoder(saved(root, name))
    settings = loaded.settings.changed(num_beams=3, max_length=9, no_repeat_ngram_size=2)
    save_encoder_decoder(tmp_path / "ours", loaded.model, loaded.params, settings)
    model, info = transformers.EncoderDecoderModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert (model.generation_config.num_beams, model.generation_config.max_length) == (3, 9)
    ids, mask = (torch.tensor(x, dtype=torch.long) for x in sources())
    expected = theirs(name).generate(ids, attention_mask=mask, num_beams=3, max_length=9, no_repeat_ngram_size=2)
    assert torch.equal(model.eval().generate(ids, attention_mask=mask), expected)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_decoder_starts_from_an_encoder(family, tmp_path):
    config = BertConfig.named("tiny", family, **SIZE)
    params = Bert(config, "masked_lm").init(jax.random.key(3))
    save_pretrained(tmp_path / "mlm", config, "masked_lm", params)
    loaded = load_pretrained(tmp_path / "mlm", "decoder")
    assert equal({name: loaded.params[name] for name in params}, jax.tree.map(np.asarray, params))
    assert loaded.missing and all("crossattention" in name for name in loaded.missing)
    fresh = loaded.params["cross_attention"]["query"]["kernel"]
    assert abs(fresh.std() - 0.88 * config.initializer_range) < 0.1 * config.initializer_range
    assert not loaded.params["cross_attention"]["query"]["bias"].any()


def test_other_settings_are_read_from_both_files(root, tmp_path):
    loaded = load_encoder_decoder(saved(root, "bert"))
    save_encoder_decoder(tmp_path / "model", loaded.model, loaded.params, loaded.settings)
    edit(tmp_path / "model", max_length=30, num_beams=2, early_stopping=True)
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps({"num_beams": 5, "eos_token_id": [4]}))
    found = load_encoder_decoder(tmp_path / "model").settings
    expected = GenerationSettings(**IDS | {"eos_token_id": 4}, max_length=30, num_beams=5, early_stopping=True)
    assert found == expected


REFUSED = [
    ({"tie_encoder_decoder": True}, "tie_encoder_decoder"),
    ({"repetition_penalty": 1.2}, "repetition_penalty"),
    ({"decoder_start_token_id": None}, "decoder_start_token_id: expected the id of a token"),
    ({"num_beams": 0}, "num_beams: expected an integer of at least 1"),
    ({"encoder": None}, "encoder: expected a config"),
    ({"decoder": {"is_decoder": False}}, "is_decoder: expected true"),
    ({"decoder": {"add_cross_attention": False}}, "add_cross_attention: expected true"),
    ({"decoder": {"model_type": "gpt2"}}, "expected a family of encoders, found 'gpt2'"),
    (
        {"decoder": {"model_type": "electra", "architectures": None}},
        "decoder: expected one of the families bert, roberta",
    ),
    ({"decoder": {"cross_attention_hidden_size": 32}}, "cross_attention_hidden_size"),
    ({"decoder": {"num_hidden_layers": 2}}, "layer.1"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_not_supported_is_refused(changes, message, root, tmp_path):
    loaded = load_encoder_decoder(saved(root, "bert_narrow"))
    save_encoder_decoder(tmp_path / "model", loaded.model, loaded.params, loaded.settings)
    content = json.loads((tmp_path / "model" / "config.json").read_text())
    generation = json.loads((tmp_path / "model" / "generation_config.json").read_text())
    for name, value in changes.items():
        changes = changes | {name: content[name] | value if isinstance(value, dict) else value}
        generation.pop(name, None)
    edit(tmp_path / "model", **changes)
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(generation))
    with pytest.raises(InputError, match=message):
        load_encoder_decoder(tmp_path / "model")


def test_a_missing_tensor_and_one_of_another_shape_are_named(root, tmp_path):
    for name, changed in (("enc_to_dec_proj.bias", None), ("enc_to_dec_proj.weight", np.zeros((3, 3), np.float32)),
                          ("decoder.bert.encoder.layer.0.crossattention.self.key.bias", None)):  # fmt: skip
        tensors = tensors_of(saved(root, "bert_narrow"))
        del tensors[name]
        tensors |= {} if changed is None else {name: changed}
        path = tmp_path / name
        path.mkdir()
        (path / "config.json").write_text((saved(root, "bert_narrow") / "config.json").read_text())
        safetensors.numpy.save_file(tensors, path / "model.safetensors")
        with pytest.raises(InputError, match=name.removeprefix("decoder.")):
            load_encoder_decoder(path)


def test_the_verb_converts(root, tmp_path, capsys):
    before, after = tensors_of(saved(root, "bert_narrow")), {}
    for dtype in ("float32", "float16"):
        assert main(["convert", str(saved(root, "bert_narrow")), str(tmp_path / dtype), "--dtype", dtype]) == 0
        after[dtype] = tensors_of(tmp_path / dtype)
    assert "encoder-decoder of bert and bert" in capsys.readouterr().out
    assert all(np.array_equal(after["float32"][name], before[name]) for name in before)
    assert all(np.array_equal(after["float16"][name], before[name].astype(np.float16)) for name in before)
    load_encoder_decoder(tmp_path / "float16")
    for flags in (["--head", "masked_lm"], ["--format", "flax"], ["--family", "roberta"]):
        assert main(["convert", str(saved(root, "bert_narrow")), str(tmp_path / "other"), *flags]) == 2
        assert "an encoder-decoder" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    for verb in (["inspect"], ["quantize", "--out", str(tmp_path / "x"), "--mode", "int8"]):
        assert main([verb[0], str(saved(root, "bert")), *verb[1:]]) == 2
        assert "found an encoder-decoder" in capsys.readouterr().err


def test_an_encoder_decoder_is_not_opened_as_an_encoder(root):
    path = saved(root, "bert")
    assert saved_head(path) == "encoder_decoder"
    with pytest.raises(InputError, match="expected an encoder, found an encoder-decoder"):
        load_pretrained(path)
    model = load_encoder_decoder(path).model
    with pytest.raises(InputError, match=r"expected EncoderDecoder.apply, found Bert.apply"):
        model.decoder.apply({}, np.zeros((1, 2), np.int32))
    with pytest.raises(InputError, match="at most the decoder's 40 positions"):
        model.apply({}, np.zeros((1, 2), np.int32), None, np.zeros((1, 41), np.int32))
