"""Read ColBERT models in the layout of their authors: a BERT, a projection beside it, and `artifact.metadata`."""

import contextlib
import string

from bert_jax.config.values import EmbeddingLayer
from bert_jax.conversion.checkpoint import Model
from bert_jax.conversion.choose_head import STANFORD_PROJECTION
from bert_jax.conversion.module_files import checked_object, optional_boolean, optional_integer
from bert_jax.conversion.multi_vector_settings import DEFAULT_QUERY_LENGTH, MultiVectorSettings, QueryExpansion
from bert_jax.conversion.slots import EMBEDDING_LAYER
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.model_files import multi_vector_encoders as tables


def add_settings(model: Model, stack: contextlib.ExitStack) -> Model:
    """Add the projection and settings of a ColBERT model in its authors' layout, and rename the projection's tensor.

    Raises:
        InputError: artifact.metadata is damaged.
    """
    tensors, root = model.checkpoint.tensors, model.root
    projection = tensors[f"{EMBEDDING_LAYER.format(number=0)}{STANFORD_PROJECTION}"] = tensors[STANFORD_PROJECTION]
    content, where = checked_object(root / "artifact.metadata", tables.ARTIFACT_METADATA, others=())
    attends = optional_boolean(content, "attend_to_mask_tokens", False, where)
    masks = optional_boolean(content, "mask_punctuation", True, where)
    markers = {
        "query": f"{content.get('query_token_id') or '[unused0]'} ",
        "document": f"{content.get('doc_token_id') or '[unused1]'} ",
    }
    length = optional_integer(content, "query_maxlen", where) or DEFAULT_QUERY_LENGTH
    settings = MultiVectorSettings(
        document_length=optional_integer(content, "doc_maxlen", where),
        expansion=QueryExpansion(length, attended=attends),
        skipped_words=tuple(string.punctuation) if masks else (),
        markers=tuple(markers.items()),
    )
    layer = EmbeddingLayer("dense", projection.shape[1], projection.shape[0], bias=False)
    texts = TextSettings(similarity="maxsim", prompts=tuple(markers.items()), multi_vector=settings)
    config = model.config.replace(embedding_layers=(layer,), normalize_embeddings=True)
    return model._replace(config=config, settings=texts)
