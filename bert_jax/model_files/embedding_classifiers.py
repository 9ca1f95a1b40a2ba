"""Keys of the files of a CrossEncoder of sentence-transformers, and of its last Dense, if it reads an embedding."""

from bert_jax.model_files import sentence_transformers as tables
from bert_jax.model_files.keys import harmless, honoured, refused

# The object `sentence_transformers` in the config.json of a cross-encoder.
CROSS_ENCODER = (
    honoured("activation_fn", "activation of the logits, a class of torch.nn"),
    harmless("keep_in_fp32_modules", "logits are always float32"),
    harmless("version", "version of the library that wrote the file"),
)
CLASSIFIER_DENSE = (
    *(key for key in tables.DENSE if key.name != "module_output_name"),
    refused("module_output_name", "the outputs are the logits", "scores"),
)

FILES = {
    "CROSS_ENCODER": "`sentence_transformers` in the `config.json` of a cross-encoder",
    "CLASSIFIER_DENSE": "`config.json` of the last Dense of a CrossEncoder with a Pooling",
}
