"""Encoder-decoders of transformers with random weights, and inputs for them."""

import functools

import numpy as np
import pytest

SIZE = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "max_position_embeddings": 40}  # fmt: skip
IDS = {"decoder_start_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
# Name -> family, and what differs in the decoder.
SHAPES = {
    "bert": ("Bert", {}),
    "bert_deep": ("Bert", {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_act": "relu"}),
    "bert_narrow": ("Bert", {"hidden_size": 24, "num_hidden_layers": 1}),
    "roberta": ("Roberta", {"num_hidden_layers": 1}),
    "camembert": ("Camembert", {}),
    "xlm_roberta": ("XLMRoberta", {"hidden_size": 16}),
}


@functools.cache
def theirs(name, seed=0):
    """An encoder-decoder of transformers with random weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    family, changes = SHAPES[name]
    kind = getattr(transformers, f"{family}Config")
    own = {"pad_token_id": 0} if family != "Bert" else {}  # so that padding is padding in both conventions
    encoder, decoder = kind(**SIZE | own, initializer_range=0.4), kind(**SIZE | own | changes, initializer_range=0.4)
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, **IDS)
    torch.manual_seed(seed)
    model = transformers.EncoderDecoderModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.1 * torch.randn_like(parameter)
        head = model.decoder.cls.predictions if family == "Bert" else model.decoder.lm_head
        head.bias[IDS["eos_token_id"]] += 4.0  # so that some texts end early
    return model


def saved(root, name, seed=0):
    """The directory of such a model in a folder."""
    path = root / f"{name}_{seed}"
    if not path.exists():
        theirs(name, seed).save_pretrained(path)
    return path


def sources(seed=0, length=11):
    """Sources of several lengths, padded."""
    rng = np.random.default_rng(seed)
    lengths = np.array([length, 6, 3, 8])
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    return (rng.integers(5, 60, mask.shape) * mask).astype(np.int32), mask


def targets():
    rng = np.random.default_rng(1)
    mask = np.arange(9) < np.array([9, 5, 2, 7])[:, None]
    ids = (rng.integers(5, 60, mask.shape) * mask).astype(np.int32)
    ids[:, 0] = 2
    return ids, mask
