"""Keys of the last Dense of a classifier over sentence embeddings, a CrossEncoder of sentence-transformers."""

from bert_jax.model_files import sentence_transformers as tables
from bert_jax.model_files.keys import refused

CLASSIFIER_DENSE = (
    *(key for key in tables.DENSE if key.name != "module_output_name"),
    refused("module_output_name", "the outputs are the logits", "scores"),
)

FILES = {"CLASSIFIER_DENSE": "`config.json` of the last Dense of a CrossEncoder with a Pooling"}
