"""The keys of recipes: default, meaning, choices and range of each key, one table per task.

`bert-jax config`, docs/recipes.md and the checks of `resolve` all read these tables.
"""

import math
from collections.abc import Iterator, Mapping

from bert_jax.config.quantization import GROUP_SIZE, KEEP, TRAINED_MODES
from bert_jax.data.diffusion import NOISE_SCHEDULES, NOISE_WEIGHTINGS
from bert_jax.data.finetuning.answers import ANSWER_FILLS
from bert_jax.data.finetuning.entity_markers import MARKERS
from bert_jax.data.finetuning.labels import MISSING_RULES, TWIN_RULES
from bert_jax.data.finetuning.windows import LONG_TEXTS
from bert_jax.data.invalid_rows import RULES
from bert_jax.recipes.base import Key
from bert_jax.recipes.model_keys import model_keys
from bert_jax.recipes.retrieval_definitions import (
    EMBEDDING_DATA,
    MULTI_VECTOR_DATA,
    RERANKING_DATA,
    SPARSE_EMBEDDING_DATA,
)

DTYPE_CHOICES = ("auto", "float32", "bfloat16")
OPTIMIZER_CHOICES = ("adamw", "lamb", "adafactor", "muon")
MASK_UNITS = ("token", "word", "span")
DISTANCES = ("cosine", "squared", "similarities")
SCHEDULE_CHOICES = ("bert_linear", "linear", "constant", "quadratic", "cosine", "rsqrt", "wsd")

_OPTIMIZER = {
    "optimizer.name": Key("adamw", "the optimizer", OPTIMIZER_CHOICES),
    "optimizer.learning_rate": Key(1e-4, "peak learning rate, reached at the end of warm-up", least=0),
    "optimizer.warmup_steps": Key(0, "steps in which the learning rate rises linearly from 0 to its peak", least=0),
    "optimizer.warmup_ratio": Key(0.0, "warm-up as a fraction of all steps; used when warmup_steps is 0", least=0,
                                  below=1),
    "optimizer.schedule": Key("bert_linear", "learning-rate schedule after warm-up", SCHEDULE_CHOICES),
    "optimizer.weight_decay": Key(0.01, "decoupled weight decay; biases and LayerNorm have none", least=0),
    "optimizer.beta1": Key(0.9, "decay of Adam's moving average of gradients", least=0, below=1),
    "optimizer.beta2": Key(0.999, "decay of Adam's moving average of squared gradients", least=0, below=1),
    "optimizer.eps": Key(1e-6, "added to the square root of the average of squared gradients", above=0),
    "optimizer.clip_norm": Key(1.0, "global norm to which gradients are clipped; 0 = no clipping", least=0),
    "optimizer.bias_correction": Key(False, "whether Adam corrects the bias of its averages; the original BERT does "
                                     "not"),
    "optimizer.layer_decay": Key(1.0, "learning rate of a layer as a multiple of the learning rate of the layer above "
                                 "it", above=0),
    "optimizer.frozen_layers": Key(0, "number of lowest layers that are frozen, with the embeddings; 0 = none",
                                   least=0),
    "optimizer.frozen_embeddings": Key(False, "whether the embeddings are frozen"),
    "optimizer.average_decay": Key(0.0, "decay of a moving average of the parameters, which is evaluated and saved in "
                                   "their place; 0 = no average", least=0, below=1),
}  # fmt: skip

_DISTILLATION = {
    "distillation.teacher": Key("", "model directory of the teacher; empty = no distillation"),
    "distillation.student_layers": Key((), "layers of the teacher, from 0, that the student starts from; () = the "
                                       "student is init_from, or has random parameters"),
    "distillation.student_embeddings": Key(False, "start the embeddings of a student that is narrower than the teacher "
                                           "from the principal components of the teacher's"),
    "distillation.cache": Key("", "directory of the teacher's outputs for all training rows, computed once; empty = "
                              "the teacher runs in every step"),
    "distillation.weights.labels": Key(1.0, "weight of the task's own loss; 0 = labels of data.train are not read",
                                       least=0),
    "distillation.weights.soft_labels": Key(0.0, "weight of the divergence from the teacher's predictions", least=0),
    "distillation.weights.hidden_states": Key(0.0, "weight of the squared error of hidden states (layer_map)", least=0),
    "distillation.weights.attentions": Key(0.0, "weight of the squared error of attention scores before the softmax "
                                           "(layer_map)", least=0),
    "distillation.weights.relations": Key(0.0, "weight of the divergence of the last layer's self-attention relations",
                                          least=0),
    "distillation.weights.last_hidden_state": Key(0.0, "weight of the cosine distance of the last hidden states",
                                                  least=0),
    "distillation.weights.embeddings": Key(0.0, "weight of the distance of sentence embeddings (embedding_distance)",
                                           least=0),
    "distillation.temperature": Key(1.0, "temperature of soft labels", above=0),
    "distillation.layer_map": Key((), "((student layer, teacher layer), ...) from 0, where -1 is the output of the "
                                  "embeddings; () = evenly spaced, with the embeddings"),
    "distillation.relations": Key(("qq", "kk", "vv"), "self-attention relations of queries, keys and values: any of "
                                  "qk, qq, kk, vv"),
    "distillation.relation_heads": Key(0, "number of heads into which widths are split for relations; 0 = the "
                                       "teacher's attention heads", least=0),
    "distillation.relation_layer": Key(-1, "layer of the teacher, from 0, whose relations the student's last layer "
                                       "learns; -1 = the last", least=-1),
    "distillation.embedding_distance": Key("cosine", "distance of sentence embeddings: cosine, squared = squared "
                                           "Euclidean, similarities = squared error of the cosines within a batch",
                                           DISTANCES),
}  # fmt: skip

SHARED_KEYS = {
    "task": Key("", "task; set by the recipe"),
    "seed": Key(0, "seed of the initial parameters, dropout, and the order and masks of the data", least=0,
                below=2**31),
    "init_from": Key("", "model directory to start from, local or gs://; empty = random parameters"),
    "tokenizer": Key("", "tokenizer file or directory; empty = the tokenizer of the prepared data or of init_from"),
    "dtype": Key("auto", "type of matrix products; auto = bfloat16 on accelerators, float32 on CPU", DTYPE_CHOICES),
    "layers": Key("auto", "scan = compile one layer and loop over it, unroll = compile each layer; auto = unroll on "
                  "CPU, else scan", ("auto", "scan", "unroll")),
    "remat": Key("auto", "rematerialisation in the backward pass: none, dots = all but matrix products, full = "
                 "everything; auto = none on CPU, else dots", ("auto", "none", "dots", "full")),
    "attention": Key("auto", "attention backend: fused and splash are for TPU, cudnn for GPU (docs/attention.md)",
                     ("auto", "xla", "fused", "splash", "cudnn")),
    "reduce_dtype": Key("float32", "type in which devices sum gradients; bfloat16 (with dtype=bfloat16) halves that "
                        "traffic and gathers weights once a step", ("float32", "bfloat16")),
    **model_keys(),
    "mesh.data": Key(-1, "number of copies of the parameters, each on its own fsdp * tensor devices; -1 = all "
                     "remaining devices"),
    "mesh.fsdp": Key(1, "devices over which a copy of parameters and optimizer state is sharded; -1 = all remaining "
                     "devices"),
    "mesh.tensor": Key(1, "devices over which heads and feed-forward units are split; must divide the number of heads"),
    "global_batch_size": Key(256, "examples in a step, over all devices and micro-batches", least=1),
    "accumulation_steps": Key(1, "micro-batches per step; n micro-batches need 1/n of the activation memory, with the "
                              "same gradient", least=1),
    "num_steps": Key(0, "number of optimizer steps; 0 = computed from num_epochs", least=0, below=2**31),
    "num_epochs": Key(0.0, "passes over the training data; used when num_steps is 0", least=0),
    **_OPTIMIZER,
    "fresh_layers": Key(0, "number of highest layers of init_from that are reinitialised, with the pooler; 0 = none",
                        least=0),
    "lora.rank": Key(0, "rank of LoRA, which trains only the added matrices; 0 = no LoRA", least=0),
    "lora.alpha": Key(16.0, "LoRA's update is scaled by alpha / rank", above=0),
    "lora.targets": Key(("query", "value"), "matrices that LoRA adapts: any of query, key, value, output, up, gate, "
                        "down"),
    **_DISTILLATION,
    "quantization.mode": Key("", "quantization-aware training: mode of the finished model, as which each forward pass "
                             "rounds; empty = none", ("", *TRAINED_MODES)),
    "quantization.group_size": Key(GROUP_SIZE, "mode int4: inputs of a dense layer that share a scale", least=2),
    "quantization.keep": Key(KEEP, "patterns (with * and ?) of paths of parameters that stay float32"),
    "log_every": Key(0, "steps between lines of metrics.jsonl; 0 = 100, or a 20th of the steps in a short run",
                     least=0),
    "eval_every": Key(0, "steps between evaluations; 0 = only at the end", least=0),
    "eval_batch_size": Key(0, "examples in a batch of evaluation; 0 = global_batch_size, or more with packing",
                           least=0),
    "checkpoint_every": Key(1000, "steps between checkpoints; 0 = only at the end", least=0),
    "max_skipped_steps": Key(10, "consecutive steps that may be skipped because their loss or gradient is not finite",
                             least=0),
    "keep_checkpoints": Key(2, "number of newest checkpoints to keep, besides the best", least=1),
    "warn_after_seconds": Key(600, "every host warns after this number of seconds without a finished step; 0 = never",
                              least=0),
    "wandb": Key("", "Weights & Biases project to which metrics are logged too; empty = none"),
    "profile": Key((), "(first step, number of steps) to profile, written to profile/; () = none"),
    "best_metric": Key("", "evaluation metric that selects the checkpoint to save as the model (lower is better for "
                       "loss, perplexity and mse); empty = the last step"),
    "stop_after": Key(0, "early stopping: the run ends after this number of consecutive evaluations without a new "
                      "best; 0 = never", least=0),
}  # fmt: skip

PRETRAINING_KEYS = {
    "stages": Key((), "((num_steps, sequence_length, global_batch_size), ...): stages that run in turn under one "
                  "learning-rate schedule; () = one stage"),
    "data.prepared": Key("", "directory that `bert-jax prepare` wrote; {sequence_length} in it is replaced by that of "
                         "the stage"),
    "data.mixture": Key((), "prepared directories that every batch draws from, in place of data.prepared; () = none"),
    "data.mixture_weights": Key((), "weights of the directories of data.mixture, or a tuple of weights for each stage; "
                                "() = see mixture_epochs"),
    "data.mixture_epochs": Key((), "passes over each directory of data.mixture in an epoch, as weights; () = see "
                               "mixture_temperature"),
    "data.mixture_temperature": Key(1.0, "without weights and epochs, a directory has the weight rows ** (1 / "
                                    "mixture_temperature)", above=0),
    "data.sequence_length": Key(128, "tokens in a sequence; below the prepared length, pairs are cut; above it, an "
                                "error", least=8),
    "data.mask_prob": Key(0.15, "fraction of tokens that are masked, that is, to be predicted", above=0, below=1),
    "data.max_predictions": Key(0, "most masked tokens in a sequence; 0 = mask_prob * sequence_length", least=0),
    "data.mask_unit": Key("token", "unit of masking: a token, a whole word or a span of words", MASK_UNITS),
    "data.hidden_share": Key(0.8, "fraction of the masked tokens that [MASK] replaces", least=0),
    "data.random_share": Key(0.1, "fraction of the masked tokens that a random token replaces; the rest keeps its "
                             "token", least=0),
    "data.static_masks": Key(0, "number of fixed masks of an example, reused in turn by the epochs; 0 = a new mask "
                             "each epoch", least=0),
    "data.eval_batches": Key(0, "number of held-out batches in an evaluation; 0 = all", least=0),
    "data.eval_sequence_length": Key(0, "sequence length of held-out examples; 0 = that of the stage with the most "
                                     "steps", least=0),
}  # fmt: skip
ELECTRA_KEYS = PRETRAINING_KEYS | {
    "model.generator_size": Key(0.25, "width of the generator as a fraction of the discriminator's", above=0),
    "model.generator_layers": Key(0, "number of layers of the generator; 0 = those of the discriminator", least=0),
    "model.embedding_sharing": Key("es", "embeddings of generator and discriminator: es = shared, gdes = shared with "
                                   "disentangled gradients, none = separate", ("es", "gdes", "none")),
    "discriminator_weight": Key(50.0, "weight of the discriminator's loss; the generator's loss has weight 1", least=0),
}  # fmt: skip

_NOISE_SCHEDULE = Key("linear", "distribution of the share of masked tokens: linear = uniform; cosine, quadratic = low "
                      "shares more often", NOISE_SCHEDULES)  # fmt: skip
_NOISE_WEIGHTING = Key("bound", "weights of masked tokens: bound = the loss is the bound of the negative "
                       "log-likelihood; equal = 1", NOISE_WEIGHTINGS)  # fmt: skip
DIFFUSION_PRETRAINING_KEYS = {
    name: key
    for name, key in PRETRAINING_KEYS.items()
    if name
    not in ("data.mask_prob", "data.max_predictions", "data.mask_unit", "data.hidden_share", "data.random_share")
} | {"data.noise_schedule": _NOISE_SCHEDULE, "data.noise_weighting": _NOISE_WEIGHTING}

_FINE_TUNING = {
    "keep_head": Key(False, "whether training starts from the trained head of init_from, whose classes must be those "
                     "of the data"),
    "data.train": Key("", "training data: .tsv, .csv, .jsonl or tfds:NAME:SPLIT"),
    "data.dev": Key("", "evaluation data, in the formats of data.train; empty = none"),
    "data.dev_share": Key(0.0, "fraction of the rows that is held out for evaluation; used without data.dev", least=0,
                          below=1),
    "data.split_seed": Key(0, "seed of the choice of rows for data.dev_share", least=0, below=2**31),
    "data.invalid_rows": Key("strict", "invalid rows: strict = stop with an error that names the first, skip = "
                             "skip and count them", RULES),
    "data.length_buckets": Key((), "padded lengths of batches; () = chosen from the data"),
    "data.max_seq_length": Key(128, "maximum number of tokens in an example; longer texts are cut", least=3),
}  # fmt: skip
# How a table is read, beside the names of its columns.
_TABLE = {
    "data.delimiter": Key("", "character between the columns of a CSV, or tab; empty = detected from its first lines"),
    "data.encoding": Key("", "encoding of TSV, CSV and JSON lines, such as cp1252; empty = UTF-8, or that of the byte "
                         "order mark"),
}  # fmt: skip
_HAS_HEADER = Key(True, 'whether the first line names the columns; without it columns are named by number, from 0: "3"')
_PACKING = Key(0, "tokens in a row of packed examples; a step has global_batch_size rows; 0 = one example per row",
               least=0)  # fmt: skip
_DOC_STRIDE = "tokens from the start of one window to the start of the next"

CLASSIFICATION_KEYS = _FINE_TUNING | _TABLE | {
    "label_smoothing": Key(0.0, "fraction of the label's probability that is spread evenly over all classes", least=0,
                           below=1),
    "r_drop": Key(0.0, "R-Drop: weight of the divergence between two passes with different dropout; 0 = one pass",
                  least=0),
    "data.task_type": Key("classification", "type of labels: classification = one class per text, multi_label = any "
                          "number of classes, regression = a number", ("classification", "multi_label", "regression")),
    "data.label_separator": Key(",", "separator of several labels in a cell (multi_label); JSON lines may have lists"),
    "data.label_names": Key((), "names of the classes in order, so that labels may be numbers; () = the labels in the "
                            "data"),
    "data.label_twins": Key("keep", "labels that differ only in case, spaces, quotes or the spelling of a number: keep "
                            "= separate classes, with a warning; merge = one class", TWIN_RULES),
    "data.missing_labels": Key("keep", "labels that are empty, '-', 'nan' or the like: keep = empty ones are invalid, "
                               "others a class, with a warning; drop = skip these rows", MISSING_RULES),
    "data.class_weights": Key("", "weights of classes in the loss: balanced = inverse to their frequency; empty = "
                              "equal", ("", "balanced")),
    "data.text_column": Key("sentence", "column of the text"),
    "data.pair_column": Key("", "column of the second text of a pair; empty = single texts"),
    "data.label_column": Key("label", "column of the label"),
    "data.has_header": _HAS_HEADER,
    "data.metrics": Key((), "metrics of evaluation: any of accuracy, f1, matthews, macro_f1, micro_f1, weighted_f1, "
                        "pearson, spearman, mse; () = chosen by the task type"),
    "data.long_texts": Key("cut", "single texts over max_seq_length: cut, or split into windows whose logits are "
                           "averaged", LONG_TEXTS),
    "data.doc_stride": Key(0, f"{_DOC_STRIDE}; 0 = half a window", least=0),
    "data.packing": _PACKING,
    "data.token_dropout": Key(0.0, "fraction of input tokens that a training step replaces with [MASK]", least=0,
                              below=1),
}  # fmt: skip
TOKEN_CLASSIFICATION_KEYS = _FINE_TUNING | {
    "data.train": Key("", "training data: CoNLL (.conll, .txt, .tsv, .iob, .bio), .conllu, .jsonl or tfds:NAME:SPLIT"),
    "data.text_column": Key(
        "", "column of the words; in CoNLL a number, empty = the first; elsewhere a name, empty = tokens"
    ),
    "data.label_column": Key(
        "", "column of the tags; in CoNLL a number, empty = the last; elsewhere a name, empty = upos, tags or ner_tags"
    ),
    "data.tag_names": Key((), "names of the tags 0, 1, ... where the data has numbers for tags; () = tags are names"),
    "data.metrics": Key(
        (),
        "metrics of evaluation: any of f1, precision, recall, accuracy, types (f1 of each entity type or tag); "
        "() = all but types",
    ),
    "data.max_seq_length": Key(
        128, "maximum number of tokens in a sentence; longer sentences become overlapping windows", least=3
    ),
    "data.packing": _PACKING,
}
_OF_GLINER = "not set = as in the model, else"
ZERO_SHOT_NER_KEYS = _FINE_TUNING | {
    "data.train": Key("", "training data: JSON of tokenized_text and ner, or tagged sentences (CoNLL, JSON, TFDS)"),
    "data.text_column": Key("", "column of the words; empty = tokenized_text in JSON, the first in CoNLL"),
    "data.label_column": Key("", "column of the spans or tags; empty = ner in JSON, the last in CoNLL"),
    "data.type_names": Key((), "names for types of the data in prompts, such as ('PER=person', 'LOC=place')"),
    "data.metrics": Key((), "metrics of evaluation: any of f1, precision, recall, types (f1 of each type); () = all "
                        "but types"),
    "data.max_seq_length": Key(384, "maximum number of tokens of types and text; longer texts become overlapping "
                               "windows", least=16),
    "data.max_width": Key(int, f"most words in an entity; {_OF_GLINER} 12", least=1),
    "data.hidden_size": Key(int, f"width of the vectors of words, spans and types; {_OF_GLINER} 512", least=2),
    "data.num_rnn_layers": Key(int, f"layers of the LSTM over the words; {_OF_GLINER} 1", least=0),
    "data.embed_ent_token": Key(bool, f"whether a type's vector is that of the token before its name, or of the name's "
                                f"first; {_OF_GLINER} True"),
    "data.dropout": Key(float, f"dropout rate inside the head; {_OF_GLINER} 0.4", least=0, below=1),
    "data.max_types": Key(int, f"most types of an example; {_OF_GLINER} 25", least=1),
    "data.max_neg_type_ratio": Key(int, f"most sampled types of an example for each entity; {_OF_GLINER} 1", least=0),
}  # fmt: skip
RELATION_EXTRACTION_KEYS = _FINE_TUNING | {
    "data.train": Key("", "training data: JSON of TACRED or DocRED, or JSON lines of text, head, tail and label"),
    "data.markers": Key("typed_entity_marker_punct", "markers of the two entities (docs/relation_extraction.md); those "
                        "without _punct add tokens to the vocabulary", tuple(MARKERS)),
    "data.null_label": Key("", "relation of pairs without one, left out of f1; empty = no_relation or NA, if the data "
                           "have it"),
    "data.null_ratio": Key(0.0, "most training pairs without a relation for each pair with one; 0 = all", least=0),
    "data.multi_label": Key(False, "whether a pair may have several relations, as in DocRED"),
    "data.metrics": Key((), "metrics of evaluation: any of f1, precision, recall, accuracy, types (f1 of each "
                        "relation); () = all but types"),
    "data.max_seq_length": Key(128, "maximum number of tokens in an example; longer texts are cut around the entities",
                               least=8),
}  # fmt: skip
MULTIPLE_CHOICE_KEYS = (
    _FINE_TUNING
    | _TABLE
    | {
        "data.context_column": Key("context", "column of the context"),
        "data.question_column": Key("", "column of a text that is put before every choice; empty = none"),
        "data.choice_columns": Key(
            ("choices",), "columns with one choice each, or one column of lists (JSON lines, TFDS)"
        ),
        "data.label_column": Key("label", "column of the right choice: its number from 0, or its letter from A"),
        "data.has_header": _HAS_HEADER,
        "data.max_seq_length": Key(
            128, "maximum number of tokens in a context with a choice; longer texts are cut", least=3
        ),
    }
)
QUESTION_ANSWERING_KEYS = _FINE_TUNING | {
    "data.train": Key("", "training data: .json of SQuAD 1.1 or 2.0, or tfds:NAME:SPLIT with the fields of TFDS's "
                      "squad"),
    "data.max_seq_length": Key(384, "maximum number of tokens in question and context; longer contexts become "
                               "windows", least=3),
    "data.doc_stride": Key(128, _DOC_STRIDE, least=0),
    "data.packing": _PACKING,
    "data.max_query_length": Key(64, "maximum number of tokens in a question; longer questions are cut", least=1),
    "data.max_answer_length": Key(30, "maximum number of tokens in an answer", least=1),
    "data.n_best": Key(20, "number of most likely starts and ends of a window that are combined into answers; 0 = all",
                       least=0),
    "data.null_threshold": Key(0.0, "SQuAD 2.0: predict no answer where its score exceeds the best span's by more than "
                               "this", above=-math.inf),
}  # fmt: skip
SEQUENCE_TO_SEQUENCE_KEYS = {name: key for name, key in _FINE_TUNING.items() if name != "keep_head"} | _TABLE | {
    "decoder_init_from": Key("", "model directory that the decoder starts from; empty = that of init_from"),
    "model.decoder_layers": Key(0, "number of layers of a decoder with random parameters; 0 = those of the encoder",
                                least=0),
    "label_smoothing": Key(0.0, "fraction of a token's probability that is spread evenly over the vocabulary", least=0,
                           below=1),
    "data.source_column": Key("source", "column of the text to read"),
    "data.target_column": Key("target", "column of the text to write"),
    "data.has_header": _HAS_HEADER,
    "data.max_seq_length": Key(512, "maximum number of tokens in a source; longer texts are cut", least=3),
    "data.max_target_length": Key(128, "maximum number of tokens in a target; longer texts are cut", least=3),
    "generation.num_beams": Key(4, "beams with which the finished model writes; 1 = greedy search", least=1),
    "generation.length_penalty": Key(1.0, "power of the length by which beam search divides log probabilities",
                                     above=-math.inf),
    "generation.no_repeat_ngram_size": Key(0, "tokens of sequences that the finished model never writes twice; 0 = no "
                                           "limit", least=0),
}  # fmt: skip
SENTENCE_EMBEDDING_KEYS = _FINE_TUNING | _TABLE | EMBEDDING_DATA | {"data.has_header": _HAS_HEADER}
RERANKING_KEYS = _FINE_TUNING | _TABLE | RERANKING_DATA | {"data.has_header": _HAS_HEADER}
_SEARCH = _FINE_TUNING | _TABLE | {"data.has_header": _HAS_HEADER}
SPARSE_EMBEDDING_KEYS = _SEARCH | SPARSE_EMBEDDING_DATA
MULTI_VECTOR_KEYS = _SEARCH | MULTI_VECTOR_DATA
MASKED_DIFFUSION_KEYS = _FINE_TUNING | _TABLE | {
    "data.text_column": Key("", "column of the prompt, which is never masked; empty = no prompt"),
    "data.answer_column": Key("", "column of the answer, the text to generate"),
    "data.messages_column": Key("", "instead of both, in JSON: column of conversations, lists of role and content; "
                                "messages of the assistant are answers"),
    "data.has_header": _HAS_HEADER,
    "data.max_seq_length": Key(256, "maximum number of tokens in a row; longer prompts are cut, conversations at their "
                               "beginning", least=8),
    "data.answer_length": Key(64, "maximum number of tokens in an answer, end-of-text tokens included; longer answers "
                              "are cut", least=2),
    "data.answer_fill": Key("random", "end-of-text tokens behind an answer: full = up to answer_length tokens; "
                            "random = up to a random number; none = one", ANSWER_FILLS),
    "data.noise_schedule": _NOISE_SCHEDULE,
    "data.noise_weighting": _NOISE_WEIGHTING,
    "data.packing": _PACKING,
}  # fmt: skip
_OF_TASK: Mapping[str, Mapping[str, Key]] = {
    "pretraining": SHARED_KEYS | PRETRAINING_KEYS,
    "electra": SHARED_KEYS | ELECTRA_KEYS,
    "diffusion_pretraining": SHARED_KEYS | DIFFUSION_PRETRAINING_KEYS,
    "classification": SHARED_KEYS | CLASSIFICATION_KEYS,
    "token_classification": SHARED_KEYS | TOKEN_CLASSIFICATION_KEYS,
    "question_answering": SHARED_KEYS | QUESTION_ANSWERING_KEYS,
    "sentence_embedding": SHARED_KEYS | SENTENCE_EMBEDDING_KEYS,
    "reranking": SHARED_KEYS | RERANKING_KEYS,
    "sparse_embedding": SHARED_KEYS | SPARSE_EMBEDDING_KEYS,
    "multi_vector": SHARED_KEYS | MULTI_VECTOR_KEYS,
    "multiple_choice": SHARED_KEYS | MULTIPLE_CHOICE_KEYS,
    "zero_shot_ner": SHARED_KEYS | ZERO_SHOT_NER_KEYS,
    "masked_diffusion": SHARED_KEYS | MASKED_DIFFUSION_KEYS,
    "relation_extraction": SHARED_KEYS | RELATION_EXTRACTION_KEYS,
    "sequence_to_sequence": SHARED_KEYS | SEQUENCE_TO_SEQUENCE_KEYS,
}


class _Keys(Mapping[str, Mapping[str, Key]]):
    """Task -> its keys, with those of families that were registered after this module was imported."""

    def __getitem__(self, task: str) -> Mapping[str, Key]:
        return {**_OF_TASK[task], **model_keys()}

    def __iter__(self) -> Iterator[str]:
        return iter(_OF_TASK)

    def __len__(self) -> int:
        return len(_OF_TASK)


KEYS = _Keys()

# Former name of a key -> its name, for the `config.json` of older runs and command lines written for them.
RENAMED_KEYS: Mapping[str, str] = {"data.bad_rows": "data.invalid_rows"}
