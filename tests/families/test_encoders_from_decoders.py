"""Encoders made of decoders, or of encoder-decoders: files of sentence-transformers, masks, and what is refused."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import convert
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.modeling import Bert
from bert_jax.tokenization import load_tokenizer

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
library = pytest.importorskip("sentence_transformers", reason="the oracle; it is installed on Python 3.11 only")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")
modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")

from decoder_tokenizers import gemma_folder, qwen_folder, t5_folder  # noqa: E402

WIDTH = 32
TEXTS = ["the cat sat on a mat", "Red RIVER", "a river of stone \u6c34 " * 9, "x"]
SIZES = {"hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128}  # fmt: skip
T5_SIZES = {"d_model": WIDTH, "d_ff": 48, "num_layers": 3, "num_heads": 4, "d_kv": 16}
# As in EmbeddingGemma, Qwen3-Embedding and Sentence-T5: prompts, pooling, dense layers.
PROMPTS = {
    "gemma3_text": {"query": "task: search result | query: ", "document": "title: none | text: "},
    "qwen3": {"query": "Instruct: answer the question\nQuery:", "document": ""},
    "t5": {"query": "query: ", "document": ""},
}


def write_encoder(family, directory):
    """Write a small model of transformers with its tokenizer."""
    torch.manual_seed(0)
    directory.mkdir()
    if family == "gemma3_text":
        tokenizer = gemma_folder(directory, TEXTS * 5)
        options = {"use_bidirectional_attention": True, "sliding_window": 8, "sliding_window_pattern": 3}
        kind, config = transformers.Gemma3TextModel, transformers.Gemma3TextConfig
    elif family == "t5":
        tokenizer = t5_folder(directory, TEXTS * 5)
        options = {"feed_forward_proj": "gated-gelu"}
        kind, config = transformers.T5EncoderModel, transformers.T5Config
    else:
        tokenizer = qwen_folder(True)(directory, TEXTS * 5)
        options = {"pad_token_id": tokenizer.pad_token_id, "tie_word_embeddings": True}
        kind, config = transformers.Qwen3Model, transformers.Qwen3Config
    sizes = T5_SIZES if family == "t5" else SIZES
    model = kind(config(vocab_size=len(tokenizer), **sizes | options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    model.save_pretrained(directory)


@pytest.fixture(scope="module", params=PROMPTS)
def embedder(request, tmp_path_factory):
    """A family, and a model of sentence-transformers as its authors publish it."""
    root = tmp_path_factory.mktemp(request.param)
    write_encoder(request.param, root / "encoder")
    layers = [modules.Transformer(str(root / "encoder")), modules.Pooling(WIDTH, pooling_mode="lasttoken")]
    if request.param == "t5":
        dense = modules.Dense(WIDTH, WIDTH, bias=False, activation_function=torch.nn.Identity())
        layers[1:] = [modules.Pooling(WIDTH, pooling_mode="mean"), dense]
    if request.param == "gemma3_text":
        dense = [modules.Dense(a, b, bias=False, activation_function=torch.nn.Identity())
                 for a, b in ((WIDTH, 64), (64, WIDTH))]  # fmt: skip
        layers[1:] = [modules.Pooling(WIDTH, pooling_mode="mean"), *dense]
    model = library.SentenceTransformer(
        modules=[*layers, modules.Normalize()], device="cpu", prompts=PROMPTS[request.param]
    )
    model.save(str(root / "model"))
    return request.param, root / "model"


def test_vectors_are_those_of_sentence_transformers(embedder, tmp_path):
    family, path = embedder
    theirs, embed = library.SentenceTransformer(str(path), device="cpu"), pipeline("embed", path)
    assert embed.model.config.family == family
    convert(path, tmp_path / "converted", load_tokenizer)
    again = library.SentenceTransformer(str(tmp_path / "converted"), device="cpu")
    for options in ({}, {"prompt_name": "query"}, {"prompt_name": "document"}):
        expected = theirs.encode(TEXTS, **options)
        np.testing.assert_allclose(embed(TEXTS, **options), expected, atol=1e-5)
        np.testing.assert_allclose(again.encode(TEXTS, **options), expected, atol=1e-6)


@pytest.mark.parametrize("family", PROMPTS)
def test_later_tokens_change_earlier_states_only_where_attention_is_to_both_sides(family):
    config = BertConfig.named("tiny", family, vocab_size=50, initializer_range=0.3)
    model = Bert(config)
    params = model.init(jax.random.key(0))
    ids = np.arange(1, 13)[None] % 7 + 5
    changed = ids.copy()
    changed[0, -1] = 3
    before, after = (np.asarray(model.apply(params, jnp.asarray(x)).last_hidden_state) for x in (ids, changed))
    differs = np.abs(before - after)[0].max(-1) > 1e-6
    assert differs[-1] and differs[:-1].all() == (family != "qwen3") == differs[:-1].any()


@pytest.mark.parametrize("family", PROMPTS)
def test_examples_of_a_packed_row_and_rows_padded_on_the_left(family):
    """Each has the outputs of its example alone."""
    changes = {"local_window": 2, "global_every": 2} if family == "gemma3_text" else {}
    model = Bert(BertConfig.named("tiny", family, vocab_size=50, initializer_range=0.3, **changes))
    params = model.init(jax.random.key(0))
    generator = np.random.default_rng(0)
    first, second = generator.integers(3, 50, 9), generator.integers(3, 50, 6)
    packed = model.apply(
        params,
        jnp.asarray([[*first, *second, 0]]),
        segment_ids=jnp.asarray([[1] * 9 + [2] * 6 + [0]]),
        position_ids=jnp.asarray([[*range(9), *range(6), 0]]),
    ).last_hidden_state[0]
    left = model.apply(
        params, jnp.asarray([[0, 0, 0, *second]]), attention_mask=jnp.asarray([[0] * 3 + [1] * 6])
    ).last_hidden_state[0]
    alone = [model.apply(params, jnp.asarray(ids[None])).last_hidden_state[0] for ids in (first, second)]
    for found, expected in ((packed[:9], alone[0]), (packed[9:15], alone[1]), (left[3:], alone[1])):
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("family", "keys", "message"),
    [
        (
            "gemma3_text",
            {"use_bidirectional_attention": False},
            "use_bidirectional_attention: expected true, found fal",
        ),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: expected none, found 50.0: capped"),
        ("gemma3_text", {"layer_types": ["full_attention", "sliding_attention"]}, "every n-th layer"),
        ("gemma3_text", {"rope_scaling": 8.0}, "rope_scaling: expected an object, found 8.0"),
        ("qwen3", {"use_sliding_window": True}, "use_sliding_window: expected False, found True: local layers"),
        (
            "qwen3",
            {"rope_parameters": {"rope_type": "su"}},
            "rope_type: expected default, linear, dynamic, yarn, llama3",
        ),
        ("t5", {"feed_forward_proj": "a-b-c"}, "feed_forward_proj: expected an activation, or gated-ACTIVATION"),
        ("qwen3", {"layer_types": ["full_attention"]}, "layer_types: expected full_attention 2 times"),
    ],
)
def test_configs_that_are_refused(family, keys, message):
    config = BertConfig.named("tiny", family).to_hf()
    BertConfig.from_hf(config)
    with pytest.raises(InputError, match=message):
        BertConfig.from_hf(config | keys)
