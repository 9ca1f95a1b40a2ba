"""TSDAE: the loss beside sentence-transformers', deletion, learning through the loop, and what is refused."""

import dataclasses
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.families.albert.parts import TiedConfig
from bert_jax.families.mpnet.parts import RelativeBiasConfig
from bert_jax.inference import pipeline
from bert_jax.modeling import Bert
from bert_jax.modeling.reconstruction import check_reconstruction, init_decoder, reconstruction_losses
from bert_jax.tasks.embedding.dense.tsdae import DenoisingTask
from bert_jax.training.loop import train

SIZE = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "max_position_embeddings": 16}  # fmt: skip
OFF = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def tokens():
    rng = np.random.default_rng(0)
    lengths = np.array([9, 5, 7, 2])
    mask = (np.arange(9) < lengths[:, None]).astype(np.int32)
    ids = rng.integers(5, 60, mask.shape) * mask
    ids[:, 0] = 2
    ids[np.arange(4), lengths - 1] = 3
    return ids.astype(np.int32), mask


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A decoder of transformers with random weights, saved, and the masked-LM model of the same weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZE, **OFF, is_decoder=True, add_cross_attention=True, initializer_range=0.3)
    model = transformers.BertLMHeadModel(config).eval()
    config = transformers.BertConfig(**SIZE, **OFF)
    plain = transformers.BertForMaskedLM(config)
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if "crossattention" not in k}, strict=False)
    path = tmp_path_factory.mktemp("decoder")
    plain.save_pretrained(path)
    return model, path


def decoder_of(model, params):
    """The parameters of our decoder that have the weights of a decoder of transformers."""

    def stacked(name, turn):
        layers = [layer.crossattention for layer in model.bert.encoder.layer]
        found = [np.asarray(layer.get_parameter(name).detach()) for layer in layers]
        return np.stack([array.T if turn else array for array in found])

    cross = {
        "value": {"kernel": stacked("self.value.weight", True), "bias": stacked("self.value.bias", False)},
        "output": {"kernel": stacked("output.dense.weight", True), "bias": stacked("output.dense.bias", False)},
        "layer_norm": {
            "scale": stacked("output.LayerNorm.weight", False),
            "bias": stacked("output.LayerNorm.bias", False),
        },
    }
    return {"cross_attention": cross, "mlm": params["mlm"]}


def test_the_loss_is_that_of_sentence_transformers(theirs):
    import torch
    from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss

    model, path = theirs
    ids, mask = tokens()
    vectors = np.random.default_rng(1).normal(size=(4, 32)).astype(np.float32)
    leaf = torch.tensor(vectors, requires_grad=True)
    loss = DenoisingAutoEncoderLoss.__new__(DenoisingAutoEncoderLoss)
    torch.nn.Module.__init__(loss)
    loss.encoder, loss.decoder, loss.need_retokenization = lambda features: {"sentence_embedding": leaf}, model, False
    loss.tokenizer_decoder = type("Tokenizer", (), {"pad_token_id": 0})
    given = {"input_ids": torch.tensor(ids, dtype=torch.long), "attention_mask": torch.tensor(mask)}
    expected = loss((given, given), None)
    expected.backward()

    loaded = load_pretrained(path, "masked_lm")
    decoder = jax.tree.map(jnp.asarray, decoder_of(model, loaded.params))
    shapes = jax.eval_shape(lambda: init_decoder(loaded.config, jax.random.key(0)))
    assert jax.tree.map(jnp.shape, decoder) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    bert = Bert(loaded.config, "masked_lm")

    def ours(vectors):
        losses, _ = reconstruction_losses(bert, loaded.params, decoder, vectors, ids[:, :-1], ids[:, 1:], None)
        return (losses * mask[:, 1:]).sum() / mask[:, 1:].sum()

    value, grads = jax.jit(jax.value_and_grad(ours))(vectors)
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-5)
    np.testing.assert_allclose(grads, leaf.grad, rtol=1e-4, atol=1e-5 * float(leaf.grad.abs().max()))


@dataclasses.dataclass(frozen=True)
class Kept:
    """A model that is asked for nothing but its config."""

    config: object = dataclasses.field(default_factory=lambda: type("Config", (), {"pooling_skip": 0}))


def test_deletion_keeps_special_tokens_and_one_other():
    ids, mask = tokens()
    ids, mask = np.tile(ids, (200, 1)), np.tile(mask, (200, 1))
    task = DenoisingTask(type("Task", (), {"model": Kept()})(), 0.6, (0, 2, 3))
    kept = np.asarray(task._kept(jnp.asarray(ids), jnp.asarray(mask), jax.random.key(0)))
    words = (mask > 0) & ~np.isin(ids, (2, 3))
    assert kept[~words].all()
    assert (kept * words).sum(1)[words.any(1)].min() == 1
    long = words.sum(1) == 7
    assert (kept * words)[long].mean(0)[1:8].mean() == pytest.approx(0.4, abs=0.03)
    none = DenoisingTask(task.task, 0.0, (0, 2, 3))
    assert np.asarray(none._kept(jnp.asarray(ids), jnp.asarray(mask), jax.random.key(0))).all()


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("tsdae")
    write_small(root / "model", "masked_lm", num_hidden_layers=2)
    rng = np.random.default_rng(0)
    words = ("the cat", "a dog", "one bird", "two fish", "red house", "old tree", "blue river", "green stone")
    texts = [" and ".join(rng.choice(words, 2, replace=False)) for _ in range(160)]
    (root / "texts.txt").write_text("\n".join(texts))
    return root


def recipe(place, **changes):
    c = recipes.sentence_embedding()
    c.init_from, c.data.train, c.data.loss = str(place / "model"), str(place / "texts.txt"), "tsdae"
    c.data.max_seq_length, c.data.length_buckets, c.model.pooling = 12, (12,), "cls"
    c.global_batch_size, c.num_epochs, c.optimizer.learning_rate = 32, 8.0, 3e-3
    c.update_from_flattened_dict(changes)
    return c


@pytest.mark.slow
def test_texts_are_reconstructed_and_the_encoder_is_saved(place, tmp_path):
    job = jobs.build(recipes.resolve(recipe(place)))
    params = jax.eval_shape(job.init_params, jax.random.key(0))
    assert params.keys() == {"student", "decoder"} and job.pretrained["decoder"].keys() == {"mlm"}
    results = train(recipe(place), tmp_path / "run", progress=False)
    assert results["train/reconstruction_loss"] < 3.0
    saved = load_pretrained(tmp_path / "run" / "model")
    assert saved.head == "sentence_embedding" and saved.params.keys() == params["student"].keys()
    assert pipeline("sentence-embedding", tmp_path / "run" / "model")("the cat").shape == (32,)
    abstract = jobs.abstract_task(recipes.resolve(recipe(place)))
    assert jax.eval_shape(abstract.init_params, jax.random.key(0)).keys() == params.keys()


@pytest.mark.slow  # test_embedding_losses.py has a quick one
@pytest.mark.parametrize("ways", ["last", "all"])
def test_a_batch_has_one_loss_on_any_mesh_and_in_any_number_of_parts(on_eight_devices, ways):
    values, apart = on_eight_devices(pathlib.Path(__file__).with_name("tsdae_meshes.py"), ways)
    assert values == pytest.approx([values[0]] * len(values), rel=1e-5)
    assert max(apart) < 1e-4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora.rank": 2}, r"lora\.rank: expected none for loss 'tsdae', found 2"),
        ({"keep_head": True}, r"keep_head: expected none for loss 'tsdae'"),
        ({"data.deletion": 1.0}, r"data\.deletion: expected at least 0 and below 1"),
        ({"data.matryoshka_dims": (4,)}, r"matryoshka_dims: expected \(\) for loss 'tsdae'"),
        ({"data.train_columns": ("a", "b")}, r"train_columns: expected one column for loss 'tsdae'"),
    ],
)
def test_recipes_that_do_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        jobs.build(recipes.resolve(recipe(place, **changes)))


def test_layers_that_are_no_decoder():
    check_reconstruction(BertConfig())
    others = {"norm_placement": "pre", "stack": TiedConfig(1)}
    configs = {name: (BertConfig().replace(**{name: value}), value) for name, value in others.items()}
    configs["relative_attention_buckets"] = (BertConfig(positions=RelativeBiasConfig()), 32)
    for name, (config, value) in configs.items():
        message = f"{name}: expected .* for a decoder with the same layers, found {re.escape(str(value))}"
        with pytest.raises(InputError, match=message):
            check_reconstruction(config)
