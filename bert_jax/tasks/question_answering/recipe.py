"""The recipe of question answering."""

import math

from bert_jax.recipes.base import Key, ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import (
    DOC_STRIDE,
    FINE_TUNING_KEYS,
    PACKING,
    fine_tuning,
    max_seq_length,
    training_data,
)

KEYS = FINE_TUNING_KEYS | {
    "data.train": training_data("training data: .json of SQuAD 1.1 or 2.0, or tfds:NAME:SPLIT with the fields of "
                                "TFDS's squad"),
    "data.max_seq_length": max_seq_length(384, "maximum number of tokens in question and context; longer contexts "
                                          "become windows", least=3),
    "data.doc_stride": Key(128, DOC_STRIDE, least=0),
    "data.packing": PACKING,
    "data.max_query_length": Key(64, "maximum number of tokens in a question; longer questions are cut", least=1,
                                 synonyms="max_question_length"),
    "data.max_answer_length": Key(30, "maximum number of tokens in an answer", least=1, synonyms="max_answer_len"),
    "data.n_best": Key(20, "number of most likely starts and ends of a window that are combined into answers; 0 = all",
                       least=0, synonyms="n_best_size"),
    "data.null_threshold": Key(0.0, "SQuAD 2.0: predict no answer where its score exceeds the best span's by more than "
                               "this", above=-math.inf, synonyms="null_score_diff_threshold version_2_with_negative"),
}  # fmt: skip

RECIPE = TaskRecipe(
    "extractive question answering, with the paper's values for SQuAD 1.1 as defaults",
    build="bert_jax.tasks.question_answering.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=32, epochs=3.0, learning_rate=5e-5),
    use=ModelUse(
        "question-answering",
        "question-answering",
        '"Who was it?", "It was Ada Lovelace."',
        inputs='{tokenizer}("Who was it?", "It was Ada Lovelace."{options})',
    ),
    synthetic_rows="bert_jax.tasks.question_answering.task.synthetic_rows",
)
