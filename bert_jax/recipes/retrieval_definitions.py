"""The keys of recipes that train models for retrieval: losses of sentence embeddings and their settings."""

from bert_jax.recipes.key_type import Key

# Losses that compare the rows of a batch with each other, so that the losses of its parts do not sum to its loss.
WHOLE_BATCH_LOSSES = ("in_batch_negatives", "cosent", "angle")
EMBEDDING_LOSSES = ("in_batch_negatives", "cosine", "cosent", "angle", "triplet", "none")
LABELLED_LOSSES = ("cosine", "cosent", "angle")  # losses that train on labels

EMBEDDING_DATA = {
    "data.loss": Key("in_batch_negatives", "the loss, which decides what a row holds (docs/sentence_embeddings.md); "
                     "none = distil only", EMBEDDING_LOSSES),
    "data.scale": Key(20.0, "in_batch_negatives, cosent, angle: factor of the similarities", above=0),
    "data.label_scale": Key(1.0, "cosine: label of two texts with the same meaning; labels are divided by it", above=0),
    "data.distance": Key("euclidean", "triplet: distance between embeddings", ("euclidean", "cosine")),
    "data.margin": Key(1.0, "triplet: margin by which the negative should be farther away than the positive", above=0),
    "data.matryoshka_dims": Key((), "Matryoshka: the loss is summed over embeddings cut to these numbers of leading "
                                "dimensions; () = whole embeddings"),
    "data.matryoshka_weights": Key((), "weight of the loss at each of matryoshka_dims; () = 1 each"),
    "data.train_columns": Key((), "none: columns of texts in data.train; () = text_column and pair_column"),
    "data.text_column": Key("sentence1", "column of the first text"),
    "data.pair_column": Key("sentence2", "column of the second text"),
    "data.negative_column": Key("", "column of the negative text, which loss triplet needs; empty = none"),
    "data.label_column": Key("", "column of the similarity of a pair, for the losses cosine, cosent and angle and for "
                             "evaluation; empty = none"),
    "data.metrics": Key((), "metrics of evaluation: any of spearman, pearson or, without labels, retrieval_accuracy, "
                        "mrr; () = all that apply"),
}  # fmt: skip
