"""Every key of a recipe: default, meaning, choices and range, one table a task.

`bert-jax config`, docs/recipes.md and the checks of `resolve` all read these tables.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bert_jax.config_values import CHOICES, POOLINGS
from bert_jax.data.finetuning.labels import MISSING_RULES, TWIN_RULES
from bert_jax.data.finetuning.windows import LONG_TEXTS
from bert_jax.data.invalid_rows import RULES

DTYPE_CHOICES = ("auto", "float32", "bfloat16")
OPTIMIZER_CHOICES = ("adamw", "lamb", "adafactor", "muon")
MASK_UNITS = ("token", "word", "span")
EMBEDDING_LOSSES = ("in_batch_negatives", "cosine", "triplet")
SCHEDULE_CHOICES = ("bert_linear", "linear", "constant", "quadratic", "cosine", "rsqrt", "wsd")


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of a recipe.

    Attributes:
        default: the value where no recipe sets the key, which also gives its type; a type means "not set".
        meaning: one line.
        choices: the values that are allowed; () = no such list.
        least: the smallest value that is allowed, None = no limit.
        above: what a value must be greater than, None = no limit.
        below: what a value must be less than, None = no limit.
    """

    default: Any
    meaning: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def type(self) -> type:
        """The type of the key's values."""
        return self.default if isinstance(self.default, type) else type(self.default)

    @property
    def value(self) -> Any:
        """The default as a value: None where the key is not set."""
        return None if isinstance(self.default, type) else self.default

    def limits(self) -> str:
        """The range in words, such as `at least 0 and below 1`; "" = no limits."""
        if self.above == -math.inf:
            return "a finite number"
        limits = (("at least", self.least), ("more than", self.above), ("below", self.below))
        return " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)

    def allowed(self) -> str:
        """Which values there may be, such as `float, at least 0` or `one of token, word, span`."""
        if self.choices:
            return "one of " + ", ".join(choice or '""' for choice in self.choices)
        return ", ".join(filter(None, (self.type.__name__, self.limits())))

    def in_range(self, value: float) -> bool:
        """Whether a number keeps the limits; NaN never does, and infinity only where a key has no limits."""
        if not self.limits():
            return True
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and value < (math.inf if self.below is None else self.below)
        )


_MODEL = {
    "model.size": Key(
        "base", "named size: tiny, mini, small, medium, base, large, or one of model.family's own; other keys change it"
    ),
    "model.vocab_size": Key(0, "rows of the word embedding; 0 = the tokenizer's number of tokens", least=0),
    "model.family": Key(str, "family of the encoder; not set = that of init_from, else bert", CHOICES["family"]),
    "model.hidden_size": Key(int, "width of the residual stream", least=1),
    "model.num_hidden_layers": Key(int, "number of encoder layers", least=1),
    "model.num_attention_heads": Key(int, "number of attention heads; must divide hidden_size", least=1),
    "model.intermediate_size": Key(int, "width of the feed-forward layer", least=1),
    "model.hidden_act": Key(str, "activation of the feed-forward layer", CHOICES["hidden_act"]),
    "model.hidden_dropout_prob": Key(
        float, "dropout rate after embeddings, attention output and feed-forward output", least=0, below=1
    ),
    "model.attention_probs_dropout_prob": Key(float, "dropout rate of attention probabilities", least=0, below=1),
    "model.classifier_dropout": Key(
        float, "dropout rate before a classifier; not set = hidden_dropout_prob", least=0, below=1
    ),
    "model.max_position_embeddings": Key(int, "longest sequence that the model takes, in tokens", least=1),
    "model.type_vocab_size": Key(int, "number of segment ids; 0 = no segment embedding", least=0),
    "model.initializer_range": Key(float, "standard deviation parameter of the truncated normal initializer", least=0),
    "model.layer_norm_eps": Key(float, "added to the variance in LayerNorm", above=0),
    "model.position_embedding_type": Key(str, "positions: learned, fixed sinusoids, or rotary",
                                         CHOICES["position_embedding_type"]),
    "model.embedding_size": Key(int, "width of the embeddings; not set = hidden_size", least=1),
    "model.local_window": Key(int, "tokens to either side that a local layer attends to; not set = all layers global",
                              least=1),
    "model.global_every": Key(int, "every how many layers one is global, from the first", least=1),
    "model.rope_theta": Key(float, "base of rotary positions", above=0),
    "model.local_rope_theta": Key(float, "base of rotary positions in local layers; not set = rope_theta", above=0),
    "model.norm_bias": Key(bool, "whether LayerNorm has biases"),
    "model.attention_bias": Key(bool, "whether the attention projections have biases"),
    "model.mlp_bias": Key(bool, "whether the feed-forward layer has biases"),
    "model.head_bias": Key(bool, "whether the dense layer of the masked-LM head has a bias"),
    "model.decoder_bias": Key(bool, "whether the masked-LM head has a bias for each token"),
    "model.tie_word_embeddings": Key(bool, "whether the output matrix of the masked-LM head is the word embedding"),
    "model.classifier_pooling": Key(str, "what a ModernBERT classifier reads: the first token or the mean of all",
                                    CHOICES["classifier_pooling"]),
    "model.qa_dropout": Key(float, "dropout rate before the span head of question answering", least=0, below=1),
    "model.pooling": Key(str, f"pooling of token vectors into a sentence embedding: {', '.join(POOLINGS)}; "
                         "+ joins several"),
    "model.normalize_embeddings": Key(bool, "whether a sentence embedding is scaled to unit length"),
}  # fmt: skip
MODEL_FIELDS = tuple(name.removeprefix("model.") for name in _MODEL if isinstance(_MODEL[name].default, type))

_OPTIMIZER = {
    "optimizer.name": Key("adamw", "the optimizer", OPTIMIZER_CHOICES),
    "optimizer.learning_rate": Key(1e-4, "highest learning rate, at the end of warm-up", least=0),
    "optimizer.warmup_steps": Key(0, "steps in which the rate rises from 0 to the highest", least=0),
    "optimizer.warmup_ratio": Key(0.0, "the same as a fraction of all steps, when warmup_steps is 0", least=0, below=1),
    "optimizer.schedule": Key("bert_linear", "learning-rate schedule after warm-up", SCHEDULE_CHOICES),
    "optimizer.weight_decay": Key(0.01, "decoupled weight decay; biases and LayerNorm have none", least=0),
    "optimizer.beta1": Key(0.9, "decay of the average of gradients (momentum)", least=0, below=1),
    "optimizer.beta2": Key(0.999, "decay of the average of squared gradients", least=0, below=1),
    "optimizer.eps": Key(1e-6, "added to the root of the average of squared gradients", above=0),
    "optimizer.clip_norm": Key(1.0, "gradients are scaled down to this global norm; 0 = never", least=0),
    "optimizer.bias_correction": Key(False, "whether Adam corrects its averages for their start; BERT's does not"),
    "optimizer.layer_decay": Key(1.0, "rate of a layer as a multiple of the rate of the layer above it", above=0),
    "optimizer.frozen_layers": Key(0, "lowest layers, and the embeddings, that are not trained; 0 = none", least=0),
    "optimizer.frozen_embeddings": Key(False, "whether the embeddings are not trained"),
    "optimizer.average_decay": Key(
        0.0, "decay of a moving average of the parameters, which is evaluated and kept; 0 = no average",
        least=0, below=1),
}  # fmt: skip

SHARED_KEYS = {
    "task": Key("", "the task; set by the recipe"),
    "seed": Key(0, "seed of parameters, dropout, and the order and masks of the data", least=0, below=2**31),
    "init_from": Key("", "model directory to start from, local or gs://; empty = random parameters"),
    "tokenizer": Key("", "tokenizer file or directory; empty = that of the prepared data or of init_from"),
    "dtype": Key("auto", "type of matrix products; auto = bfloat16 on accelerators, float32 on CPU", DTYPE_CHOICES),
    "layers": Key(
        "auto", "scan compiles one layer for all, unroll each of them; auto = unroll on CPU, scan elsewhere",
        ("auto", "scan", "unroll")),
    "remat": Key(
        "auto", "what the backward pass recomputes: nothing, all but matrix products, or all; auto = none on CPU, else "
        "dots", ("auto", "none", "dots", "full")),
    "attention": Key("auto", "attention backend: fused and splash are for TPU, cudnn for GPU (docs/attention.md)",
                     ("auto", "xla", "fused", "splash", "cudnn")),
    **_MODEL,
    "mesh.data": Key(-1, "devices with a whole copy of the parameters (or of an fsdp group); -1 = all that remain"),
    "mesh.fsdp": Key(1, "devices that share one copy of parameters and optimizer state; -1 = all that remain"),
    "mesh.tensor": Key(1, "devices that share the work inside a layer; must divide the number of heads"),
    "global_batch_size": Key(256, "examples in a step, over all devices and micro-batches", least=1),
    "accumulation_steps": Key(1, "micro-batches in a step: 1/n of the activations' memory, the same gradient", least=1),
    "num_steps": Key(0, "number of optimizer steps; 0 = from num_epochs", least=0, below=2**31),
    "num_epochs": Key(0.0, "passes over the training data, when num_steps is 0", least=0),
    **_OPTIMIZER,
    "fresh_layers": Key(0, "highest layers of init_from, and the pooler, that start from random parameters", least=0),
    "lora.rank": Key(0, "rank of low-rank adaptation: only the added matrices are trained; 0 = no adaptation", least=0),
    "lora.alpha": Key(16.0, "scale of low-rank adaptation: alpha / rank", above=0),
    "lora.targets": Key(("query", "value"), "matrices that low-rank adaptation adds to: of query, key, value, output, "
                        "up, gate, down"),
    "log_every": Key(0, "steps between lines of metrics.jsonl; 0 = 100, or a 20th of a shorter run", least=0),
    "eval_every": Key(0, "steps between evaluations, besides the one at the end; 0 = only at the end", least=0),
    "eval_batch_size": Key(0, "examples in a batch of evaluation; 0 = global_batch_size, or more where rows are packed",
                           least=0),
    "checkpoint_every": Key(1000, "steps between checkpoints, besides that at the end; 0 = only at the end", least=0),
    "max_skipped_steps": Key(10, "steps in a row that may be skipped for a non-finite loss or gradient", least=0),
    "keep_checkpoints": Key(2, "number of newest checkpoints that are kept, besides the best", least=1),
    "warn_after_seconds": Key(600, "seconds without a finished step after which every host warns; 0 = never", least=0),
    "wandb": Key("", "project at Weights & Biases that gets the metrics too; empty = none"),
    "profile": Key((), "(first step, number of steps) to trace into profile/; () = none"),
    "best_metric": Key("", "evaluation metric by which the finished model is chosen (lower is better for loss, "
                       "perplexity and mse); empty = the last state"),
    "stop_after": Key(0, "evaluations in a row worse than the best after which the run ends; 0 = never", least=0),
}  # fmt: skip

PRETRAINING_KEYS = {
    "stages": Key((), "((num_steps, sequence_length, global_batch_size), ...), one after the other with one schedule; "
                  "() = one stage"),
    "data.prepared": Key("", "directory that `bert-jax prepare` wrote; {sequence_length} in it is the stage's"),
    "data.sequence_length": Key(128, "tokens in a sequence; fewer than prepared cuts pairs, more is an error", least=8),
    "data.mask_prob": Key(0.15, "fraction of tokens to predict", above=0, below=1),
    "data.max_predictions": Key(0, "most tokens to predict in a sequence; 0 = mask_prob * sequence_length", least=0),
    "data.mask_unit": Key("token", "what is masked at once: a token, a whole word or a span of words", MASK_UNITS),
    "data.hidden_share": Key(0.8, "fraction of the tokens to predict that becomes [MASK]", least=0),
    "data.random_share": Key(0.1, "fraction of the tokens to predict that becomes a random token", least=0),
    "data.static_masks": Key(0, "number of masks of an example, reused in turn by the epochs; 0 = new ones each epoch",
                             least=0),
    "data.eval_batches": Key(0, "held-out batches in an evaluation; 0 = all", least=0),
    "data.eval_sequence_length": Key(0, "tokens of held-out examples; 0 = those of the stage with the most steps",
                                     least=0),
}  # fmt: skip
ELECTRA_KEYS = PRETRAINING_KEYS | {
    "model.generator_size": Key(0.25, "width of the generator as a fraction of the discriminator's", above=0),
    "discriminator_weight": Key(50.0, "weight of the discriminator's loss beside the generator's, which is 1", least=0),
}

_FINE_TUNING = {
    "data.train": Key("", "training data: .tsv, .csv, .jsonl or tfds:NAME:SPLIT"),
    "data.dev": Key("", "evaluation data, like data.train; empty = none"),
    "data.dev_share": Key(0.0, "fraction of the rows held out for evaluation, without data.dev", least=0, below=1),
    "data.split_seed": Key(0, "seed by which data.dev_share chooses rows", least=0, below=2**31),
    "data.invalid_rows": Key("strict", "invalid rows: an error that names the first, or skipped and counted", RULES),
    "data.length_buckets": Key((), "lengths to which batches are padded; () = chosen from the data"),
    "data.max_seq_length": Key(128, "most tokens of an example; longer texts are cut", least=3),
}  # fmt: skip
# Where text, pair and label stand in a table, beside the names of its columns.
_TABLE = {
    "data.delimiter": Key("", "character between the columns of a CSV, or tab; empty = found in its first lines"),
    "data.encoding": Key("", "encoding of TSV, CSV and JSON lines, such as cp1252; empty = UTF-8, or as a byte order "
                         "mark says"),
}  # fmt: skip
_HAS_HEADER = Key(True, 'whether the first line names the columns; without it columns are numbers from 0: "3"')
_PACKING = Key(0, "tokens of rows that hold several examples, global_batch_size rows to a step; 0 = one example a row",
               least=0)  # fmt: skip
_DOC_STRIDE = "tokens from the start of one window to the start of the next"

CLASSIFICATION_KEYS = _FINE_TUNING | _TABLE | {
    "label_smoothing": Key(0.0, "fraction of a label that is spread evenly over all classes", least=0, below=1),
    "r_drop": Key(0.0, "weight of the divergence between two passes with different dropout; 0 = one pass", least=0),
    "data.task_type": Key("classification", "one label a text, several or none, or a number",
                          ("classification", "multi_label", "regression")),
    "data.label_separator": Key(",", "separator of several labels in a cell (multi_label); JSON lines may have lists"),
    "data.label_names": Key((), "classes in their order, so that labels may be their numbers; () = the labels found"),
    "data.label_twins": Key("keep", "labels that differ in case, spaces, quotes or the spelling of a number: kept as "
                            "classes with a warning, or merged", TWIN_RULES),
    "data.missing_labels": Key("keep", "rows whose label is empty, '-', 'nan' or the like: invalid or a class with a "
                               "warning, or left out (drop)", MISSING_RULES),
    "data.class_weights": Key("", "balanced = rare classes weigh as much as frequent ones; empty = each row the same",
                              ("", "balanced")),
    "data.text_column": Key("sentence", "column of the text"),
    "data.pair_column": Key("", "column of the second text of a pair; empty = single texts"),
    "data.label_column": Key("label", "column of the label"),
    "data.has_header": _HAS_HEADER,
    "data.metrics": Key((), "of accuracy, f1, matthews, macro_f1, micro_f1, weighted_f1, pearson, spearman, mse"),
    "data.long_texts": Key("cut", "single texts over max_seq_length: cut, or trained on and averaged in windows",
                           LONG_TEXTS),
    "data.doc_stride": Key(0, f"{_DOC_STRIDE}; 0 = half of a row", least=0),
    "data.packing": _PACKING,
    "data.token_dropout": Key(0.0, "fraction of tokens that a training step replaces by [MASK]", least=0, below=1),
}  # fmt: skip
TOKEN_CLASSIFICATION_KEYS = _FINE_TUNING | {
    "data.train": Key("", "training data: CoNLL (.conll, .txt, .tsv, .iob, .bio), .jsonl or tfds:NAME:SPLIT"),
    "data.text_column": Key("", "column of the words: in CoNLL a number, empty = the first; else empty = tokens"),
    "data.label_column": Key(
        "", "column of the tags: in CoNLL a number, empty = the last; else empty = tags or ner_tags"
    ),
    "data.tag_names": Key((), "names of the classes that tags are numbers of, in their order; () = tags are names"),
    "data.metrics": Key((), "of f1, precision, recall, accuracy, types (each entity type); () = all but types"),
    "data.max_seq_length": Key(128, "most tokens of a sentence; longer ones become overlapping windows", least=3),
    "data.packing": _PACKING,
}
MULTIPLE_CHOICE_KEYS = (
    _FINE_TUNING
    | _TABLE
    | {
        "data.context_column": Key("context", "column of the context"),
        "data.question_column": Key("", "column of a text that precedes every choice; empty = none"),
        "data.choice_columns": Key(("choices",), "columns of a choice each, or one column of lists (JSON lines, TFDS)"),
        "data.label_column": Key("label", "column of the right choice: its number from 0, or its letter from A"),
        "data.has_header": _HAS_HEADER,
        "data.max_seq_length": Key(128, "most tokens of a context with a choice; longer texts are cut", least=3),
    }
)
QUESTION_ANSWERING_KEYS = _FINE_TUNING | {
    "data.train": Key("", "training data: SQuAD's .json, version 1.1 or 2.0, or tfds:NAME:SPLIT like TFDS's squad"),
    "data.max_seq_length": Key(384, "most tokens of question and context; longer contexts become windows", least=3),
    "data.doc_stride": Key(128, _DOC_STRIDE, least=0),
    "data.packing": _PACKING,
    "data.max_query_length": Key(64, "most tokens of a question; the rest is cut off", least=1),
    "data.max_answer_length": Key(30, "most tokens of an answer", least=1),
    "data.n_best": Key(20, "most likely starts and ends of a window that are combined into answers; 0 = all", least=0),
    "data.null_threshold": Key(0.0, "no answer where its score exceeds the best answer's by more than this (SQuAD 2.0)",
                               above=-math.inf),
}  # fmt: skip
SENTENCE_EMBEDDING_KEYS = _FINE_TUNING | _TABLE | {
    "data.loss": Key("in_batch_negatives", "loss: other rows as negatives, labelled cosines, or triplets",
                     EMBEDDING_LOSSES),
    "data.scale": Key(20.0, "in_batch_negatives: factor of cosines before the softmax", above=0),
    "data.label_scale": Key(1.0, "cosine: the label of two texts that mean the same", above=0),
    "data.distance": Key("euclidean", "triplet: distance between embeddings", ("euclidean", "cosine")),
    "data.margin": Key(1.0, "triplet: by how much the negative must be farther away than the pair", above=0),
    "data.text_column": Key("sentence1", "column of the first text"),
    "data.pair_column": Key("sentence2", "column of the second text"),
    "data.negative_column": Key("", "column of a text unlike the first, which triplet needs; empty = none"),
    "data.label_column": Key("", "column of how similar a pair is, for the cosine loss and evaluation; empty = none"),
    "data.has_header": _HAS_HEADER,
    "data.metrics": Key((), "of spearman, pearson or, without labels, retrieval_accuracy, mrr; () = all that fit"),
}  # fmt: skip

# Task -> the keys that its recipes have.
KEYS: Mapping[str, Mapping[str, Key]] = {
    "pretraining": SHARED_KEYS | PRETRAINING_KEYS,
    "electra": SHARED_KEYS | ELECTRA_KEYS,
    "classification": SHARED_KEYS | CLASSIFICATION_KEYS,
    "token_classification": SHARED_KEYS | TOKEN_CLASSIFICATION_KEYS,
    "question_answering": SHARED_KEYS | QUESTION_ANSWERING_KEYS,
    "sentence_embedding": SHARED_KEYS | SENTENCE_EMBEDDING_KEYS,
    "multiple_choice": SHARED_KEYS | MULTIPLE_CHOICE_KEYS,
}

# Former name of a key -> its name, for the `config.json` of older runs and command lines written for them.
RENAMED_KEYS: Mapping[str, str] = {"data.bad_rows": "data.invalid_rows"}
