"""The same numbers as Hugging Face transformers from the same weights, in float32: the oracle of what a BERT is.

Tolerances are relative: the largest difference over the largest value of a tensor.
"""

import pathlib

import jax
import numpy as np
import pytest

from bert_jax import BertConfig, from_pretrained
from bert_jax.conversion.state_dict_writing import to_huggingface
from bert_jax.families import FAMILIES
from bert_jax.head_names import EMBEDDING_HEADS
from bert_jax.inference import PretrainedModel, pipeline
from bert_jax.tasks.pretraining.task import PretrainingTask

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")

HEADS = tuple(FAMILIES["bert"].names.architectures)
VOCABULARY, LENGTHS, CHOICES = 97, (19, 13, 7), 4
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 24,
}


def relative(ours, theirs) -> float:
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
    assert ours.shape == theirs.shape
    return float(np.abs(np.asarray(ours) - theirs).max() / np.abs(theirs).max())


def oracle(head: str, **changes):
    """A Hugging Face model in which every parameter is random, LayerNorms and biases too."""
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**SHAPE, **changes}, attn_implementation="eager")
    model = getattr(transformers, FAMILIES["bert"].names.architectures[head])(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.endswith("LayerNorm.weight") else 0.0, 0.15)
    return model


def opened(model, head: str, directory: pathlib.Path) -> PretrainedModel:
    model.save_pretrained(directory)
    return from_pretrained(directory, head=head)


def batch(head: str) -> dict[str, np.ndarray]:
    """Padded rows of several lengths with two segments; for multiple choice, four of each."""
    generator = np.random.default_rng(1)
    shape = (len(LENGTHS), CHOICES, max(LENGTHS)) if head == "multiple_choice" else (len(LENGTHS), max(LENGTHS))
    lengths = np.asarray(LENGTHS).reshape((-1,) + (1,) * (len(shape) - 1))
    mask = np.broadcast_to(np.arange(max(LENGTHS)) < lengths, shape)
    segments = np.broadcast_to(np.arange(max(LENGTHS)) >= lengths // 2, shape) & mask
    ids = np.where(mask, generator.integers(1, VOCABULARY, shape), 0)
    return {
        "input_ids": ids.astype(np.int32),
        "attention_mask": np.ascontiguousarray(mask, np.int32),
        "token_type_ids": np.ascontiguousarray(segments, np.int32),
    }


def both(model, ours: PretrainedModel, inputs: dict[str, np.ndarray]):
    with torch.no_grad():
        theirs = model(
            **{name: torch.tensor(array).long() for name, array in inputs.items()},
            output_hidden_states=True,
            output_attentions=True,
        )
    return ours(**inputs, output_hidden_states=True, output_attentions=True), theirs


VARIANTS = [(head, {}) for head in HEADS if head not in EMBEDDING_HEADS] + [
    ("encoder", {"hidden_act": "gelu_new"}),
    ("masked_lm", {"hidden_act": "gelu_pytorch_tanh"}),
    ("encoder", {"hidden_act": "relu", "layer_norm_eps": 1e-5, "type_vocab_size": 3}),
    ("sequence_classification", {"num_labels": 1, "problem_type": "regression"}),
    ("token_classification", {"num_labels": 9}),
]


@pytest.mark.oracle
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("head", "changes"), VARIANTS)
def test_outputs(tmp_path, head, changes):
    model = oracle(head, **changes)
    ours = opened(model, head, tmp_path)
    assert ours.missing == ()
    out, expected = both(model, ours, batch(head))
    compared = 0
    for name in ("last_hidden_state", "pooler_output", "logits", "prediction_logits", "seq_relationship_logits",
                 "start_logits", "end_logits"):  # fmt: skip
        if expected.get(name) is not None:
            assert relative(getattr(out, name), expected[name]) < 1e-5, name
            compared += 1
    assert compared >= 1
    assert len(out.hidden_states) == len(expected.hidden_states) == SHAPE["num_hidden_layers"] + 1
    for state, theirs in zip(out.hidden_states, expected.hidden_states, strict=True):
        assert relative(state, theirs) < 1e-5
    for attention, theirs in zip(out.attentions, expected.attentions, strict=True):
        assert relative(attention, theirs) < 1e-5


def test_outputs_without_mask_and_segments(tmp_path):
    model = oracle("encoder")
    inputs = {"input_ids": batch("encoder")["input_ids"]}
    out, expected = both(model, opened(model, "encoder", tmp_path), inputs)
    assert relative(out.last_hidden_state, expected.last_hidden_state) < 1e-5


def test_gathered_positions_give_the_logits_of_all_positions(tmp_path):
    model = oracle("masked_lm")
    ours = opened(model, "masked_lm", tmp_path)
    inputs = batch("masked_lm")
    places = np.array([[1, 5, 18], [0, 12, 3], [6, 2, 2]])
    out, expected = both(model, ours, inputs)
    gathered = ours(**inputs, masked_positions=places)
    theirs = np.take_along_axis(expected.logits.numpy(), places[..., None], axis=1)
    assert relative(gathered.logits, theirs) < 1e-5 and relative(out.logits, expected.logits) < 1e-5


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_gradients_of_the_pretraining_loss(tmp_path, activation):
    model = oracle("pretraining", hidden_act=activation, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    ours = opened(model, "pretraining", tmp_path)
    inputs = batch("pretraining")
    places = np.array([[1, 5, 18], [2, 12, 0], [6, 0, 0]], np.int32)
    weights = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0]], np.float32)
    labels = np.random.default_rng(2).integers(1, VOCABULARY, places.shape).astype(np.int32)
    follows = np.array([0, 1, 1], np.int32)

    everywhere = np.full(inputs["input_ids"].shape, -100)
    for row, column in zip(*np.nonzero(weights), strict=True):
        everywhere[row, places[row, column]] = labels[row, column]
    theirs = model(
        **{name: torch.tensor(array).long() for name, array in inputs.items()},
        labels=torch.tensor(everywhere),
        next_sentence_label=torch.tensor(follows).long(),
    ).loss
    theirs.backward()

    task = PretrainingTask(ours.bert, majority_id=5)
    example = {
        **inputs,
        "masked_positions": places,
        "masked_labels": labels,
        "masked_weights": weights,
        "next_sentence_labels": follows,
        "example_weights": np.ones(3, np.float32),
    }
    loss = jax.jit(jax.value_and_grad(lambda params: task.loss(params, example, None, task.weights(example))[0]))
    value, gradients = loss(ours.params)
    assert abs(float(value) - theirs.item()) < 1e-5 * theirs.item()
    named = to_huggingface(ours.config, "pretraining", gradients)
    expected = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    assert named.keys() == expected.keys()
    # The gradient of a key's bias is zero in exact arithmetic (softmax does not see a shift): what both give there is
    # rounding, which is compared with the largest gradient of all.
    rounding = 1e-7 * max(np.abs(gradient).max() for gradient in expected.values())
    for name, gradient in expected.items():
        difference = np.abs(named[name] - gradient).max()
        assert difference < (rounding if "key.bias" in name else 1e-4 * np.abs(gradient).max()), name


@pytest.mark.parametrize("head", HEADS)
def test_round_trip_is_bitwise_and_stays_tied(tmp_path, head):
    model = oracle(head)
    opened(model, head, tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    again, info = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype and torch.equal(after[name], tensor), name
    if head in ("pretraining", "masked_lm"):
        assert (
            again.cls.predictions.decoder.weight.data_ptr() == again.bert.embeddings.word_embeddings.weight.data_ptr()
        )
        assert "cls.predictions.decoder.weight" in before


def test_a_pickled_checkpoint_gives_the_same_parameters(tmp_path):
    model = oracle("pretraining")
    expected = opened(model, "pretraining", tmp_path).params
    (tmp_path / "model.safetensors").unlink()
    for zipped in (True, False):
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
        found = from_pretrained(tmp_path).params
        assert all(jax.tree.leaves(jax.tree.map(np.array_equal, found, expected)))


def test_a_base_sized_layer(tmp_path):
    """Width matters to rounding: one layer as wide as BERT-base's, at the tolerance of the small ones."""
    wide = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 1}
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**SHAPE, **wide}, attn_implementation="eager")
    model = transformers.BertModel(config).eval()
    out, expected = both(model, opened(model, "encoder", tmp_path), batch("encoder"))
    for state, theirs in zip(out.hidden_states, expected.hidden_states, strict=True):
        assert relative(state, theirs) < 1e-5


SENTENCES = [
    "What is Deep Learning?",
    "A bird in the hand is worth two in the bush.",
    "Cats",
    "The mitochondria is the powerhouse of the cell, or so every pupil of every school has been told at least once.",
    "",
    "naïve café — 日本語 123,456.78",
]


def test_minilm_embeddings(minilm):
    model = transformers.BertModel.from_pretrained(minilm).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    encoded = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**encoded).last_hidden_state
    mask = encoded["attention_mask"][..., None]
    expected = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    embed = pipeline("sentence-embedding", minilm)
    assert relative(embed(SENTENCES), expected) < 1e-5
    assert relative(embed(SENTENCES[0]), expected[0]) < 1e-5  # alone, without the padding


def test_config_reads_what_transformers_writes(tmp_path):
    for changes in ({}, {"hidden_act": "gelu_new"}, {"id2label": {0: "no", 1: "yes", 2: "maybe"}}):
        transformers.BertConfig(**SHAPE, **changes).save_pretrained(tmp_path)
        ours = BertConfig.from_json_file(tmp_path / "config.json")
        ours.to_json_file(tmp_path / "config.json")
        theirs = transformers.BertConfig.from_pretrained(tmp_path)
        for name, value in SHAPE.items():
            assert getattr(ours, name) == getattr(theirs, name) == value
        assert theirs.hidden_act == changes.get("hidden_act", "gelu")
        assert ours.num_labels == theirs.num_labels == len(changes.get("id2label", "ab"))
