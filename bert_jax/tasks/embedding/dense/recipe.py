"""The recipe of sentence embeddings."""

from typing import NamedTuple

from bert_jax.recipes.base import TWO_TEXTS, Key, ModelUse, TaskRecipe
from bert_jax.recipes.data_sets import SET_KEYS
from bert_jax.recipes.retrieval_dev_keys import RETRIEVAL_DEV_KEYS
from bert_jax.recipes.score_losses import SCORE_LOSS_KEYS
from bert_jax.recipes.shared_keys import (
    FINE_TUNING_KEYS,
    HAS_HEADER,
    TABLE_KEYS,
    column,
    fine_tuning,
    label_column,
    pair_column,
    text_column,
)
from bert_jax.tasks.embedding.retrieval_keys import PROMPT_KEYS


class EmbeddingLoss(NamedTuple):
    """The requirements of a loss.

    Attributes:
        whole_batch: whether it compares the rows of a batch with each other, so that it is not the sum of the losses of
            micro-batches.
        single_texts: whether it trains on single texts, so that evaluation reads other columns.
        labels: whether it trains on labels.
        negatives: whether each row must have a negative text.
        searches: whether the first text of a row is a query and the others are documents.
        lists: whether each row must have a list of documents with scores (`data.passages_column`).
        classes: whether a row is a text with a class, and the rows of a batch are compared by their classes.
    """

    whole_batch: bool = False
    single_texts: bool = False
    labels: bool = False
    negatives: bool = False
    searches: bool = False
    lists: bool = False
    classes: bool = False


EMBEDDING_LOSSES = {
    "in_batch_negatives": EmbeddingLoss(whole_batch=True, searches=True),
    "simcse": EmbeddingLoss(whole_batch=True, single_texts=True),
    "tsdae": EmbeddingLoss(single_texts=True),
    "cosine": EmbeddingLoss(labels=True),
    "cosent": EmbeddingLoss(whole_batch=True, labels=True),
    "angle": EmbeddingLoss(whole_batch=True, labels=True),
    "triplet": EmbeddingLoss(negatives=True, searches=True),
    "margin_mse": EmbeddingLoss(labels=True, negatives=True, searches=True),
    "kl_divergence": EmbeddingLoss(lists=True, searches=True),
    "mse": EmbeddingLoss(lists=True, searches=True),
    "contrastive": EmbeddingLoss(labels=True),
    "online_contrastive": EmbeddingLoss(whole_batch=True, labels=True),
    "batch_hard_triplet": EmbeddingLoss(whole_batch=True, labels=True, classes=True),
    "batch_hard_soft_margin_triplet": EmbeddingLoss(whole_batch=True, labels=True, classes=True),
    "batch_semi_hard_triplet": EmbeddingLoss(whole_batch=True, labels=True, classes=True),
    "batch_all_triplet": EmbeddingLoss(whole_batch=True, labels=True, classes=True),
    "supervised_contrastive": EmbeddingLoss(whole_batch=True, labels=True, classes=True),
    "none": EmbeddingLoss(single_texts=True),
}
KEYS = FINE_TUNING_KEYS | RETRIEVAL_DEV_KEYS | TABLE_KEYS | PROMPT_KEYS | SCORE_LOSS_KEYS | SET_KEYS | {
    "data.has_header": HAS_HEADER,
    "data.loss": Key("in_batch_negatives", "the loss, which decides what a row holds (docs/sentence_embeddings.md); "
                     "none = distil only", tuple(EMBEDDING_LOSSES)),
    "data.scale": Key(20.0, "in_batch_negatives, simcse, cosent, angle, supervised_contrastive: factor of the "
                      "similarities", above=0),
    "data.deletion": Key(0.6, "tsdae: fraction of the tokens of a text that are deleted", least=0, below=1),
    "data.contrast_anchors": Key(False, "in_batch_negatives: whether the texts of other rows are negatives too"),
    "data.contrast_positives": Key(False, "in_batch_negatives: whether the pairs of other rows are negatives of a "
                                   "row's pair too"),
    "data.mask_duplicates": Key(False, "in_batch_negatives, simcse: whether texts equal to a row's text or pair are no "
                                "negatives of it"),
    "data.guide": Key("", "in_batch_negatives: directory of a model of sentence embeddings, whose similarities mask "
                      "false negatives (GISTEmbed)", synonyms="gist gistembed gistembedloss cachedgistembedloss"),
    "data.guide_cache": Key("", "directory for the guide's embeddings of data.train, local or gs://"),
    "data.guide_margin": Key(0.0, "a negative is masked if the guide's similarity to it exceeds that to the pair minus "
                             "this margin", least=0),
    "data.guide_margin_strategy": Key("absolute", "whether guide_margin is a difference, or a fraction of the pair's "
                                      "similarity", ("absolute", "relative")),
    "data.label_scale": Key(1.0, "cosine: label of texts with the same meaning, by which labels are divided", above=0),
    "data.distance": Key("euclidean", "losses of triplets and contrastive losses: distance between embeddings",
                         ("euclidean", "cosine")),
    "data.margin": Key(1.0, "triplets: margin by which the negative should be farther than the positive; contrastive: "
                       "distance of pairs that differ", above=0),
    "data.matryoshka_dims": Key((), "Matryoshka: the loss is summed over embeddings cut to these numbers of leading "
                                "dimensions; () = whole embeddings", synonyms="matryoshka matryoshkaloss mrl"),
    "data.matryoshka_weights": Key((), "weight of the loss at each of matryoshka_dims; () = 1 each"),
    "data.layers_per_step": Key(0, "adaptive layers: number of earlier layers, drawn at random, that each step trains "
                                "too; 0 = none", least=0),
    "data.layers_weight": Key(1.0, "adaptive layers: weight of the mean loss of the earlier layers", least=0),
    "data.layers_kl_weight": Key(1.0, "adaptive layers: weight of the KL divergence between embeddings of an earlier "
                                 "and the last layer", least=0),
    "data.layers_kl_temperature": Key(0.3, "adaptive layers: temperature of this KL divergence", above=0),
    "data.pool_prompts": Key(bool, "whether the tokens of prompts are pooled; not set = as in the model, else True",
                             synonyms="include_prompt", per_set=False),
    "data.train_columns": column((), "losses simcse, tsdae and none: columns of texts in data.train; () = text_column "
                                 "and, for loss none, pair_column"),
    "data.text_column": text_column("sentence1", "column of the first text"),
    "data.pair_column": pair_column("sentence2", "column of the second text"),
    "data.negative_column": column("", "column of the negative text of triplet, margin_mse and in_batch_negatives; "
                                   "empty = none"),
    "data.negative_columns": column((), "columns of several negative texts of a row, in place of negative_column"),
    "data.passages_column": column("", "in_batch_negatives, margin_mse, kl_divergence, mse: column of lists of "
                                   "documents, the positive first, in place of pair_column; empty = none"),
    "data.label_column": label_column("", "column of similarities, margins (margin_mse), 1 and 0 (contrastive), "
                                      "classes, or lists of scores for passages_column"),
    "data.metrics": Key((), "metrics by the kind of evaluation data (docs/sentence_embeddings.md); () = usual ones"),
}  # fmt: skip

RECIPE = TaskRecipe(
    "sentence embeddings from pairs or triplets of texts",
    build="bert_jax.tasks.embedding.dense.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=32, epochs=1.0, learning_rate=2e-5),
    teacher_cache=True,
    whole_batch_losses=[name for name, loss in EMBEDDING_LOSSES.items() if loss.whole_batch],
    use=ModelUse("sentence-similarity", "sentence-embedding", TWO_TEXTS),
    synthetic_rows="bert_jax.tasks.embedding.dense.task.synthetic_rows",
)
