"""The heads by name, and which of them have a pooler or classes."""

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
# Heads that modules of sentence-transformers make of an encoder; no class of Hugging Face transformers has them.
EMBEDDING_HEADS = ("sentence_embedding", "sparse_embedding", "multi_vector")
DECODER_HEAD = "decoder"  # head of the decoder of `bert_jax.modeling.EncoderDecoder`; no model by itself
ENCODER_DECODER_HEAD = "encoder_decoder"  # head of `bert_jax.modeling.EncoderDecoder`, which generates texts
GLINER_HEAD = "zero_shot_ner"  # head of a GLiNER; no class of transformers has it either
# Their output layer has one name, `classifier`, but what is trained for one of them means nothing to another.
CLASSIFIERS = ("sequence_classification", "token_classification", "multiple_choice")
NAMED_CLASSIFIERS = CLASSIFIERS[:2]  # heads whose classes have names
