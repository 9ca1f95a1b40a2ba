"""Classifiers over sentence embeddings: a CrossEncoder of sentence-transformers whose last module is a Dense.

Its modules are a Transformer, a Pooling, the layers of the embedding, and a Dense whose outputs are the logits.
"""

import dataclasses

from bert_jax.config import BertConfig
from bert_jax.conversion.embedding_layers import read_dense
from bert_jax.conversion.module_files import EmbeddingModule, ModuleLayout
from bert_jax.conversion.sentence_transformers import EmbeddingSettings, read_embedding
from bert_jax.conversion.slots import EMBEDDING_LAYER
from bert_jax.errors import InputError
from bert_jax.families.names import Names, dense
from bert_jax.model_files.embedding_classifiers import CLASSIFIER_DENSE

CLASSIFIER = "classifier"  # the number of the classifier among the layers of the embedding


def with_classifier(names: Names) -> Names:
    """Return the names of an encoder's tensors, and of a classifier over its sentence embedding."""
    head = "sequence_classification"
    entries = dense(f"{EMBEDDING_LAYER.format(number=CLASSIFIER)}linear", "classifier")
    return dataclasses.replace(
        names,
        heads={**names.heads, head: entries},
        architectures={**names.architectures, head: names.architectures["encoder"]},
    )


def embedding_layout(layout: ModuleLayout) -> ModuleLayout:
    """Return the layout of the sentence embedding that a classifier reads."""
    settings = dataclasses.replace(layout.settings, cross_encoder=False)
    return layout._replace(
        head="sentence_embedding", model_type="SentenceTransformer", modules=layout.modules[:-1], settings=settings
    )


def read_embedding_classifier(layout: ModuleLayout, config: BertConfig) -> EmbeddingSettings:
    """Read the modules of a classifier over sentence embeddings.

    Raises:
        InputError: a module asks for something that is not supported, or the last is no Dense with an output for each
            class.
    """
    last = layout.modules[-1]
    if last.kind != "Dense":
        raise InputError(f"{layout.root / 'modules.json'}: expected a Dense as last module, found {last.type!r}")
    config, settings, folders, _ = read_embedding(embedding_layout(layout), config)
    _check_classifier(last, config)
    if settings.prompts and not settings.include_prompt:
        raise InputError(f"{layout.modules[1].folder / 'config.json'}: include_prompt: expected true in a classifier, "
                         "found false")  # fmt: skip
    return EmbeddingSettings(
        config.replace(classifies_embedding=True),
        settings,
        {**folders, CLASSIFIER: last.folder},  # type: ignore[dict-item]
    )


def _check_classifier(module: EmbeddingModule, config: BertConfig) -> None:
    """Raise InputError when a Dense does not compute logits of the config's classes."""
    where = module.folder / "config.json"
    layer = read_dense(module, config.sentence_embedding_size, CLASSIFIER_DENSE)
    if layer.features != config.num_labels:
        raise InputError(f"{where}: out_features: expected {config.num_labels} classes, found {layer.features}")
    if layer.activation != "identity" or layer.residual or not layer.bias:
        raise InputError(f"{where}: expected a bias, no activation (torch.nn.Identity) and no residual in a classifier")


def classifier_json(config: BertConfig) -> dict[str, object]:
    """Return the content of the config.json of the last Dense."""
    return {
        "in_features": config.sentence_embedding_size,
        "out_features": config.num_labels,
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
        "module_input_name": "sentence_embedding",
        "module_output_name": "scores",
    }
