"""Longformer and BigBird beside transformers in sequences that are long for their windows and blocks, in float32."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import from_pretrained
from bert_jax.config import BertConfig
from bert_jax.conversion.state_dict_writing import to_huggingface
from bert_jax.errors import InputError
from bert_jax.families.big_bird.kernel import random_blocks

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")
from test_hf_families import VOCABULARY, oracle, relative  # noqa: E402  (needs both)

LENGTH, BLOCK, RANDOM = 44, 4, 1
WINDOWS = {
    "longformer": {"attention_window": [4, 4, 4], "max_position_embeddings": 70},
    "windows of layers": {"attention_window": [4, 8, 12], "max_position_embeddings": 70},
    "big_bird": {"attention_type": "block_sparse", "block_size": BLOCK, "num_random_blocks": RANDOM},
    "more random blocks": {
        "attention_type": "block_sparse", "block_size": 3, "num_random_blocks": 2, "use_bias": False,
        "rescale_embeddings": True,
    },
}  # fmt: skip
LONGFORMERS = ("longformer", "windows of layers")


def model_of(name: str, head: str = "encoder"):
    return oracle("longformer" if name in LONGFORMERS else "big_bird", head, **WINDOWS[name])


def batch_of(model, lengths=(LENGTH, 37, LENGTH)) -> dict[str, np.ndarray]:
    """Rows of several lengths; in a Longformer the first has two global tokens, the second five, the third none."""
    generator, shape = np.random.default_rng(1), (len(lengths), max(lengths))
    mask = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
    inputs = {
        "input_ids": np.where(mask, generator.integers(4, VOCABULARY, shape), model.config.pad_token_id),
        "attention_mask": mask.astype(np.int32),
    }
    if model.config.model_type == "longformer":
        chosen = np.zeros(shape, np.int32)
        chosen[0, [0, 17]] = 1
        chosen[1, [0, 1, 2, 30, max(lengths) - 1]] = 1  # the last one is padding, and so has no attention
        inputs["global_attention_mask"] = chosen
    return inputs


def tensors(inputs):
    return {name: torch.tensor(array).long() for name, array in inputs.items()}


def in_layers(path, layers: str):
    model = from_pretrained(path)
    return dataclasses.replace(model, compute=dataclasses.replace(model.compute, layers=layers))


def with_room(path):
    """The model with room for two global tokens."""
    model = from_pretrained(path)
    return dataclasses.replace(model, config=model.config.replace(max_global_tokens=2))


def full_maps(model, expected, inputs) -> list[np.ndarray]:
    """The attention maps `[B, N, S, S]` of a Longformer from transformers' columns of global tokens and of windows."""
    maps, length = [], inputs["input_ids"].shape[1]
    chosen = inputs["global_attention_mask"] * inputs["attention_mask"]
    count = chosen.sum(1).max()
    for local, of_global in zip(expected.attentions, expected.global_attentions, strict=True):
        reach = (local.shape[-1] - count - 1) // 2
        full = np.zeros((*local.shape[:2], length + 2 * reach + 8, length + 2 * reach + 8), np.float32)
        for i in range(length):
            full[:, :, i, i : i + 2 * reach + 1] = local[:, :, i, count:]
        full = full[:, :, :length, reach : reach + length].copy()
        for row, places in enumerate(np.flatnonzero(line) for line in chosen):
            for slot, place in enumerate(places):
                full[row, :, :, place] = local[row, :, :, slot]
            for slot, place in enumerate(places):
                full[row, :, place] = of_global[row, :, :length, slot]
        maps.append(full)
    return maps


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("lengths", [(LENGTH, 37, LENGTH), (45, 45, 45)], ids=["padded", "full"])
def test_outputs(tmp_path, name, lengths):
    model = model_of(name)
    inputs = batch_of(model, lengths)
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = model(**tensors(inputs), output_hidden_states=True, output_attentions=True)
    ours, is_token = from_pretrained(tmp_path), inputs["attention_mask"] > 0
    found = ours(**inputs, output_hidden_states=True)
    assert relative(found.pooler_output, expected.pooler_output) < 1e-5
    length = inputs["input_ids"].shape[1]
    for state, theirs in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert relative(state[is_token], theirs.numpy()[:, :length][is_token]) < 1e-5
    dense = ours(**inputs, output_attentions=True)
    assert relative(dense.last_hidden_state[is_token], expected.last_hidden_state.numpy()[is_token]) < 1e-5
    if name in LONGFORMERS:
        maps = full_maps(model, expected, inputs)
    else:
        maps = [x[:, :, :length, :length].numpy().copy() for x in expected.attentions]
        size, times = model.config.block_size, 1 + model.config.num_random_blocks
        for x in maps:  # transformers shows the first block, which counts several times, once
            x[:, :, size : (length - 1) // size * size, :size] *= times
    for ours_, theirs in zip(dense.attentions, maps, strict=True):
        assert relative(*(np.moveaxis(x, 2, 1)[is_token] for x in (ours_, theirs))) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["windows of layers", "more random blocks"])
def test_gradients(tmp_path, name):
    model = model_of(name)
    inputs = batch_of(model)
    model.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    up = np.random.default_rng(2).standard_normal((*inputs["input_ids"].shape, 48)).astype(np.float32)
    up *= inputs["attention_mask"][..., None]
    (model(**tensors(inputs)).last_hidden_state * torch.tensor(up)).sum().backward()

    @jax.jit
    def loss(params):
        return (ours.bert.apply(params, **{k: jnp.asarray(v) for k, v in inputs.items()}).last_hidden_state * up).sum()

    named = to_huggingface(ours.config, ours.head, jax.grad(loss)(ours.params))
    expected = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    assert len(expected) > 40
    largest = max(np.abs(gradient).max() for gradient in expected.values())
    for key, gradient in expected.items():
        assert np.abs(named[key] - gradient).max() < max(1e-4 * np.abs(gradient).max(), 1e-6 * largest), key


@pytest.mark.sampled(9)
@pytest.mark.parametrize("head", ["question_answering", "masked_lm", "sequence_classification", "multiple_choice"])
@pytest.mark.parametrize("name", ["longformer", "big_bird"])
@pytest.mark.parametrize("layers", ["scan", "unroll"])
def test_heads_choose_their_global_tokens(tmp_path, name, head, layers):
    """Also where unrolled layers compute only the positions that the head reads."""
    model = model_of(name, head)
    inputs = {key: array for key, array in batch_of(model).items() if key != "global_attention_mask"}
    if name == "longformer" or head == "question_answering":
        separators = np.array([[5, 6, LENGTH - 1], [9, 10, 36], [3, 4, LENGTH - 1]])
        inputs["input_ids"][np.arange(3)[:, None], separators] = model.config.sep_token_id
    if head == "multiple_choice":
        inputs = {key: np.stack([array, array[::-1]], axis=1) for key, array in inputs.items()}
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = model(**tensors(inputs))
    ours, fields = in_layers(tmp_path, layers), ("logits", "start_logits", "end_logits")
    found = ours.run(inputs, fields)
    is_token = inputs["attention_mask"] > 0
    compared = [field for field in fields if expected.get(field) is not None]
    assert compared
    for field in compared:
        pair = np.asarray(getattr(found, field)), expected[field].numpy()
        # The logits of a question are a million less than the others, and excluded.
        pair = [np.where(x < -1e5, 0, x) for x in (x[is_token] if x.shape[:2] == is_token.shape else x for x in pair)]
        assert relative(*pair) < 1e-5, field


@pytest.mark.parametrize(
    ("length", "size", "longest"),
    [(70, 4, 128), (1024, 64, 4096), (3072, 64, 4096), (4096, 64, 4096), (2048, 64, 4096), (1024, 64, 1024)],
)
@pytest.mark.parametrize("count", [1, 3])
def test_random_blocks_of_training(length, size, longest, count):
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention as Attention

    config = transformers.BigBirdConfig(hidden_size=12, num_attention_heads=3, block_size=size, num_random_blocks=count,
                                        max_position_embeddings=longest)  # fmt: skip
    found = random_blocks(2, 3, length, size, count, longest)
    padded = -(-length // size) * size
    for layer in range(2):
        attention = Attention(config, seed=layer).train()
        np.random.seed(layer)
        if padded in (1024, 3072, 4096):
            theirs = [attention._bigbird_block_rand_mask(longest, longest, size, size, count, last_idx=1024)[
                : padded // size - 2] for _ in range(3)]  # fmt: skip
        else:
            plan = attention._get_rand_attn_plan(padded, size, count)
            theirs = attention._bigbird_block_rand_mask_with_head(padded, padded, size, size, 3, *plan)
        np.testing.assert_array_equal(found[layer], np.stack(theirs))


@pytest.mark.parametrize("layers", ["scan", "unroll"])
def test_random_blocks_are_attended_to_in_training(tmp_path, layers):
    model = oracle("big_bird", "encoder", **WINDOWS["big_bird"], hidden_dropout_prob=0.0).train()
    inputs = batch_of(model)
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = model(**tensors(inputs)).last_hidden_state.numpy()
    ours, is_token = in_layers(tmp_path, layers), inputs["attention_mask"] > 0
    options = {name: jnp.asarray(array) for name, array in inputs.items()} | {"dropout_key": jax.random.key(0)}
    found = ours.bert.apply(ours.params, **options).last_hidden_state
    assert relative(found[is_token], expected[is_token]) < 1e-5
    dense = ours.bert.apply(ours.params, **options, output_attentions=True).last_hidden_state
    assert relative(dense[is_token], expected[is_token]) < 1e-5
    without = ours(**inputs).last_hidden_state
    assert relative(without[is_token], expected[is_token]) > 1e-3


def test_more_global_tokens_than_there_is_room_for(tmp_path):
    model_of("longformer").save_pretrained(tmp_path)
    ours, ids = with_room(tmp_path), np.full((2, 20), 5)
    chosen = np.zeros_like(ids)
    chosen[1, [0, 3]] = 1
    ours(ids, global_attention_mask=chosen)
    chosen[1, 5] = 1
    with pytest.raises(InputError, match=r"expected at most 2 tokens with global attention in a row \(max_global"):
        ours(ids, global_attention_mask=chosen)
    first = np.where(np.cumsum(chosen, 1) <= 2, chosen, 0)  # within a transformed function, a row takes the first
    found = ours.bert.apply(ours.params, jnp.asarray(ids), global_attention_mask=jnp.asarray(chosen))
    assert relative(found.last_hidden_state, ours(ids, global_attention_mask=first).last_hidden_state) < 1e-6


def test_a_question_longer_than_the_room_names_where_it_comes_from(tmp_path):
    model_of("longformer", "question_answering").save_pretrained(tmp_path)
    ours, ids = with_room(tmp_path), np.full((1, 20), 5)
    ids[0, [6, 7, 19]] = 2
    with pytest.raises(InputError, match=r"at most 2 tokens .*, found 6, the head's default"):
        ours(ids)


def test_what_a_model_does_not_have_is_refused(tmp_path):
    model_of("big_bird").save_pretrained(tmp_path)
    ours, ids = from_pretrained(tmp_path), np.full((1, LENGTH), 5)
    with pytest.raises(InputError, match="global_attention_mask: expected none, as the model has no global attention"):
        ours(ids, global_attention_mask=ids)
    rows = jnp.ones((1, LENGTH), jnp.int32)
    with pytest.raises(InputError, match="attention_type: expected original_full for packed rows, found block_sparse"):
        ours.bert.apply(ours.params, rows, segment_ids=rows)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_window": [4, 4]}, "attention_window: expected an integer, or a list of 3 (num_hidden_layers), fo"),
        ({"attention_window": [4, 5, 4]}, "attention_window: expected positive even integers, found 5"),
        ({"attention_window": 0}, "attention_window: expected positive even integers, found 0"),
        ({"attention_window": "512"}, "attention_window: expected an integer, or a list of 3"),
        ({"autoregressive": True}, "autoregressive: expected False, found True: decoders are not supported"),
        ({"sep_token_id": -1}, "sep_token_id must be a non-negative integer, found -1"),
        ({"max_global_tokens": 1.5}, "max_global_tokens must be a non-negative integer, found 1.5"),
    ],
)
def test_a_longformer_that_is_not_known_is_refused(changes, message):
    hf = {"model_type": "longformer", "num_hidden_layers": 3, "num_attention_heads": 2, "hidden_act": "gelu",
          "hidden_size": 8, "layer_norm_eps": 1e-5}  # fmt: skip
    assert BertConfig.from_hf(hf).attention.attention_windows == (256,)
    with pytest.raises(InputError) as error:
        BertConfig.from_hf(hf | changes)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_type": "sparse"}, "attention_type 'sparse' is not known"),
        ({"block_size": 0}, "block_size must be a positive integer, found 0"),
        ({"use_bias": 1}, "use_bias must be true or false, found 1"),
        ({"hidden_act": "sine"}, "hidden_act 'sine' is not known"),
    ],
)
def test_a_big_bird_that_is_not_known_is_refused(changes, message):
    hf = {"model_type": "big_bird", "num_attention_heads": 12, "hidden_act": "gelu_new"}
    assert BertConfig.from_hf(hf).attention.longest_full == 704
    with pytest.raises(InputError) as error:
        BertConfig.from_hf(hf | changes)
    assert message in str(error.value)
