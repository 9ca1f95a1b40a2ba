"""The keys of recipes that train models for retrieval: losses of sentence embeddings and their settings."""

from bert_jax.recipes.base import Key

# Losses that compare the rows of a batch with each other, so that the losses of its parts do not sum to its loss.
WHOLE_BATCH_LOSSES = ("in_batch_negatives", "simcse", "cosent", "angle")
EMBEDDING_LOSSES = (
    "in_batch_negatives",
    "simcse",
    "tsdae",
    "cosine",
    "cosent",
    "angle",
    "triplet",
    "margin_mse",
    "none",
)
UNLABELLED_LOSSES = ("simcse", "tsdae", "none")  # losses of single texts: evaluation reads other columns
LABELLED_LOSSES = ("cosine", "cosent", "angle", "margin_mse")  # losses that train on labels

EMBEDDING_DATA = {
    "data.loss": Key("in_batch_negatives", "the loss, which decides what a row holds (docs/sentence_embeddings.md); "
                     "none = distil only", EMBEDDING_LOSSES),
    "data.scale": Key(20.0, "in_batch_negatives, simcse, cosent, angle: factor of the similarities", above=0),
    "data.deletion": Key(0.6, "tsdae: fraction of the tokens of a text that are deleted", least=0, below=1),
    "data.contrast_anchors": Key(False, "in_batch_negatives: whether the texts of other rows are negatives too"),
    "data.contrast_positives": Key(False, "in_batch_negatives: whether the pairs of other rows are negatives of a "
                                   "row's pair too"),
    "data.mask_duplicates": Key(False, "in_batch_negatives, simcse: whether texts equal to a row's text or pair are no "
                                "negatives of it"),
    "data.guide": Key("", "in_batch_negatives: directory of a model of sentence embeddings, whose similarities mask "
                      "false negatives (GISTEmbed)"),
    "data.guide_cache": Key("", "directory in which the guide's embeddings of data.train are kept, local or gs://"),
    "data.guide_margin": Key(0.0, "a negative is masked if the guide finds it more similar than the pair less this "
                             "margin", least=0),
    "data.guide_margin_strategy": Key("absolute", "whether guide_margin is a difference, or a fraction of the pair's "
                                      "similarity", ("absolute", "relative")),
    "data.label_scale": Key(1.0, "cosine: label of two texts with the same meaning; labels are divided by it", above=0),
    "data.distance": Key("euclidean", "triplet: distance between embeddings", ("euclidean", "cosine")),
    "data.margin": Key(1.0, "triplet: margin by which the negative should be farther away than the positive", above=0),
    "data.matryoshka_dims": Key((), "Matryoshka: the loss is summed over embeddings cut to these numbers of leading "
                                "dimensions; () = whole embeddings"),
    "data.matryoshka_weights": Key((), "weight of the loss at each of matryoshka_dims; () = 1 each"),
    "data.layers_per_step": Key(0, "adaptive layers: number of earlier layers, drawn in each step, whose embeddings "
                                "learn too; 0 = none", least=0),
    "data.layers_weight": Key(1.0, "adaptive layers: weight of the mean loss of the earlier layers", least=0),
    "data.layers_kl_weight": Key(1.0, "adaptive layers: weight of the KL divergence between embeddings of an earlier "
                                 "and the last layer", least=0),
    "data.layers_kl_temperature": Key(0.3, "adaptive layers: temperature of this KL divergence", above=0),
    "data.train_columns": Key((), "simcse, tsdae, none: columns of texts in data.train; () = text_column and, for "
                              "none, pair_column"),
    "data.text_column": Key("sentence1", "column of the first text"),
    "data.pair_column": Key("sentence2", "column of the second text"),
    "data.negative_column": Key("", "column of the negative text of triplet, margin_mse and in_batch_negatives; empty "
                                "= none"),
    "data.negative_columns": Key((), "columns of several negative texts of a row, in place of negative_column"),
    "data.label_column": Key("", "column of the similarity of a pair, for cosine, cosent, angle and evaluation, or of "
                             "the margin of margin_mse"),
    "data.metrics": Key((), "metrics of evaluation: any of spearman, pearson or, without labels, retrieval_accuracy, "
                        "mrr; () = all that apply"),
}  # fmt: skip

RERANKING_LOSSES = ("binary_cross_entropy", "contrastive", "list_net", "lambda")
RERANKING_DATA = {
    "data.loss": Key("binary_cross_entropy", "binary_cross_entropy of each passage, or a loss over the passages of a "
                     "query (docs/reranking.md)", RERANKING_LOSSES),
    "data.text_column": Key("query", "column of the query"),
    "data.pair_column": Key("passage", "column of a passage; of a relevant one, where there are negatives"),
    "data.negative_column": Key("", "column of a passage that is not relevant; empty = none"),
    "data.negative_columns": Key((), "columns of several passages that are not relevant, in place of negative_column"),
    "data.passages_column": Key("", "column of lists of passages (JSON lines, Parquet), in place of pair_column; empty "
                                "= none"),
    "data.label_column": Key("label", "column of the relevance of a passage, or of a list of the relevance of each; "
                             "empty with negatives"),
    "data.metrics": Key((), "metrics of evaluation: any of mrr, ndcg, map or, for rows of one passage, "
                        "average_precision, accuracy, f1; () = all"),
}  # fmt: skip

SEARCH_LOSSES = ("in_batch_negatives", "margin_mse", "kl_divergence")
SEARCH_DATA = {
    "data.loss": Key("in_batch_negatives", "in_batch_negatives, or a loss of a teacher's scores: margin_mse, "
                     "kl_divergence (docs/retrieval.md)", SEARCH_LOSSES),
    "data.scale": Key(1.0, "in_batch_negatives: factor of the scores before the softmax", above=0),
    "data.temperature": Key(1.0, "kl_divergence: divisor of the scores of model and teacher before the softmax",
                            above=0),
    "data.text_column": Key("sentence1", "column of the query"),
    "data.pair_column": Key("sentence2", "column of the query's document"),
    "data.negative_column": Key("", "column of a document that does not answer the query; empty = none"),
    "data.negative_columns": Key((), "columns of several such documents, in place of negative_column"),
    "data.passages_column": Key("", "column of lists of documents, the query's own first, in place of pair_column; "
                                "empty = none"),
    "data.label_column": Key("", "margin_mse, kl_divergence: column of lists of a teacher's scores of passages_column; "
                             "with a negative, of the margin"),
    "data.metrics": Key((), "metrics of evaluation: any of retrieval_accuracy, mrr; () = both"),
}  # fmt: skip
SPARSE_EMBEDDING_DATA = SEARCH_DATA | {
    "data.query_flops": Key(3e-4, "weight of the FLOPS regulariser of query vectors", least=0),
    "data.document_flops": Key(1e-4, "weight of the FLOPS regulariser of document vectors", least=0),
    "data.flops_warmup": Key(0.0, "fraction of the steps in which the weights of the FLOPS grow with the square of the "
                             "step", least=0),
}  # fmt: skip
MULTI_VECTOR_DATA = SEARCH_DATA | {
    "data.token_dim": Key(int, "dimensions of a token's vector; not set = as in the model, else 128", least=1),
    "data.query_length": Key(int, "maximum number of tokens in a query; not set = as in the model, else 32", least=3),
    "data.query_expansion": Key(bool, "whether queries are filled up with mask tokens; not set = as in the model, else "
                                "True"),
    "data.attend_to_expansion": Key(bool, "whether tokens attend to these mask tokens; not set = as in the model, else "
                                    "False"),
    "data.skip_punctuation": Key(bool, "whether punctuation in documents is not scored; not set = as in the model, "
                                 "else True"),
    "data.query_prefix": Key(str, "text before queries, perhaps a token such as '[unused0] '; not set = as in the "
                             "model, else none"),
    "data.document_prefix": Key(str, "text before documents; not set = as in the model, else none"),
}  # fmt: skip
