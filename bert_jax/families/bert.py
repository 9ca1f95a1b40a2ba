"""BERT (Devlin et al. 2018, arXiv:1810.04805), and the mapping of its tensor names, which other families reuse."""

import dataclasses

from bert_jax.families.base import Family, keys_with
from bert_jax.families.names import (
    LAYERS_PATH,
    Entry,
    Names,
    architectures,
    classifiers,
    dense,
    embedding,
    embeddings,
    norm,
)
from bert_jax.head_names import DECODER_HEAD
from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

_KEYS: tuple[FileKey, ...] = (
    honoured("position_embedding_type", "absolute (learned) or sinusoidal; others are refused"),
    refused("feed_forward_type", "gated layers need the auto_map of a Jina BERT, which names its code", "original"),
    harmless("embedding_size", "equal to hidden_size; a narrower embedding makes the model an electra"),
)


def encoder(
    prefix: str, attention_norm: str = "attention.output.LayerNorm", mlp_norm: str = "output.LayerNorm"
) -> tuple[Entry, ...]:
    """Return the entries of BERT's embeddings, layers and pooler; the names of a layer's LayerNorms may differ."""
    layer = f"{prefix}encoder.layer.{{layer}}"
    return (
        *embeddings(prefix),
        *dense(f"{layer}.attention.self.query", f"{LAYERS_PATH}/attention/query"),
        *dense(f"{layer}.attention.self.key", f"{LAYERS_PATH}/attention/key"),
        *dense(f"{layer}.attention.self.value", f"{LAYERS_PATH}/attention/value"),
        *dense(f"{layer}.attention.output.dense", f"{LAYERS_PATH}/attention/output"),
        *norm(f"{layer}.{attention_norm}", f"{LAYERS_PATH}/attention/layer_norm"),
        *feed_forward(layer, mlp_norm),
        *dense(f"{prefix}pooler.dense", "pooler/dense"),
    )


def feed_forward(layer: str, mlp_norm: str = "output.LayerNorm") -> tuple[Entry, ...]:
    """Return the entries of a layer's feed-forward part."""
    return (
        *dense(f"{layer}.intermediate.dense", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{layer}.output.dense", f"{LAYERS_PATH}/mlp/down"),
        *norm(f"{layer}.{mlp_norm}", f"{LAYERS_PATH}/mlp/layer_norm"),
    )


def masked_lm(layer_norm: str = "LayerNorm") -> tuple[Entry, ...]:
    """Return the entries of BERT's masked-LM head."""
    return (
        *dense("cls.predictions.transform.dense", "mlm/dense"),
        *norm(f"cls.predictions.transform.{layer_norm}", "mlm/layer_norm"),
        Entry("cls.predictions.bias", "mlm/bias"),
        embedding("cls.predictions.decoder", "mlm/decoder"),
    )


def cross_attention(prefix: str) -> tuple[Entry, ...]:
    """Return the entries of the cross-attention blocks of a decoder."""
    block = f"{prefix}encoder.layer.{{layer}}.crossattention"
    return (
        *dense(f"{block}.self.query", "cross_attention/query"),
        *dense(f"{block}.self.key", "cross_attention/key"),
        *dense(f"{block}.self.value", "cross_attention/value"),
        *dense(f"{block}.output.dense", "cross_attention/output"),
        *norm(f"{block}.output.LayerNorm", "cross_attention/layer_norm"),
    )


def tied_predictions(prefix: str) -> tuple[tuple[str, str], ...]:
    """Return the tied tensors of BERT's masked-LM head: (second name, original name)."""
    return (
        ("cls.predictions.decoder.weight", f"{prefix}embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    )


def with_bert_heads(
    family: str,
    prefix: str,
    entries: tuple[Entry, ...],
    causal: str,
    predictions: tuple[Entry, ...] | None = None,
) -> Names:
    """Return the names of a family with BERT's heads.

    Args:
        family: prefix of the names of Hugging Face classes.
        prefix: prefix of the encoder's tensor names.
        entries: the entries of the encoder.
        causal: the class of the causal language model, without `family`; "" = there is none. Its attention is
            bidirectional unless config.json sets is_decoder, which is refused.
        predictions: the entries of the masked-LM head; None = BERT's.
    """
    predictions = predictions or masked_lm()
    return Names(
        prefix=prefix,
        encoder=entries,
        heads=classifiers(
            masked_lm=predictions,
            pretraining=(*predictions, *dense("cls.seq_relationship", "nsp")),
            next_sentence=dense("cls.seq_relationship", "nsp"),
        ),
        architectures=architectures(family, pretraining="ForPreTraining", next_sentence="ForNextSentencePrediction"),
        other_architectures={f"{family}{causal}": "masked_lm"} if causal else {},
        tied=tied_predictions(prefix),
    )


def with_decoder_names(names: Names, masked_lm: tuple[Entry, ...], decoder: str) -> Names:
    """Add to `names` the entries of a decoder (cross-attention and the masked-LM head's) and the decoder's class."""
    heads = {**names.heads, DECODER_HEAD: (*masked_lm, *cross_attention(names.prefix))}
    return dataclasses.replace(names, heads=heads, decoder=decoder)


_NAMES = with_decoder_names(
    with_bert_heads("Bert", "bert.", encoder("bert."), "LMHeadModel"), masked_lm(), "BertLMHeadModel"
)

BERT_FAMILY = Family(
    name="bert",
    title="BERT",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="BertTokenizer",
    common_sign=r"^bert\.|^cls\.",
    vocabulary_file="vocab.txt",
    classes="Bert",
    keys=keys_with("position_embedding_type"),
)
