"""The names of the heads, and which heads have a pooler or classes."""

HEADS = (
    "encoder",
    "pretraining",
    "masked_lm",
    "next_sentence",
    "sequence_classification",
    "token_classification",
    "question_answering",
    "multiple_choice",
    "replaced_token_detection",
    "sentence_embedding",
    "sparse_embedding",
    "multi_vector",
    "zero_shot_ner",
)
# Heads whose models have no pooler, whatever the config says.
WITHOUT_POOLER = (
    "masked_lm", "token_classification", "question_answering", "replaced_token_detection", "sparse_embedding",
    "decoder",
)  # fmt: skip
# Heads that sentence-transformers builds on an encoder; Hugging Face transformers has no classes for them.
EMBEDDING_HEADS = ("sentence_embedding", "sparse_embedding", "multi_vector")
DECODER_HEAD = "decoder"  # head of the decoder in `bert_jax.modeling.EncoderDecoder`; not a model of its own
ENCODER_DECODER_HEAD = "encoder_decoder"  # head of `bert_jax.modeling.EncoderDecoder`, which generates text
GLINER_HEAD = "zero_shot_ner"  # head of a GLiNER; transformers has no class for it either
# Heads whose output layer is named `classifier`; a layer trained for one of these heads is useless for another.
CLASSIFIERS = ("sequence_classification", "token_classification", "multiple_choice")
NAMED_CLASSIFIERS = CLASSIFIERS[:2]  # heads whose classes have names
