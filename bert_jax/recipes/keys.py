"""Every key of a run, with its default and its meaning: one function a task."""

import itertools
from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict, config_dict

from bert_jax.config import BertConfig

DTYPES = ("auto", "float32", "bfloat16")
OPTIMIZERS = ("adamw", "lamb", "adafactor", "muon")
MASK_UNITS = ("token", "word", "span")
EMBEDDING_LOSSES = ("in_batch_negatives", "cosine", "triplet")
SCHEDULES = ("bert_linear", "linear", "constant", "quadratic", "cosine", "rsqrt", "wsd")

_MODEL_FIELDS = (
    ("family", str),
    ("hidden_size", int), ("num_hidden_layers", int), ("num_attention_heads", int), ("intermediate_size", int),
    ("hidden_act", str), ("hidden_dropout_prob", float), ("attention_probs_dropout_prob", float),
    ("classifier_dropout", float), ("max_position_embeddings", int), ("type_vocab_size", int),
    ("initializer_range", float), ("layer_norm_eps", float), ("position_embedding_type", str), ("embedding_size", int),
    ("local_window", int), ("global_every", int), ("rope_theta", float), ("local_rope_theta", float),
    ("norm_bias", bool), ("attention_bias", bool), ("mlp_bias", bool), ("head_bias", bool), ("decoder_bias", bool),
    ("tie_word_embeddings", bool), ("classifier_pooling", str), ("qa_dropout", float), ("pooling", str),
    ("normalize_embeddings", bool),
)  # fmt: skip


def _shared() -> ConfigDict:
    """The keys that every task has."""
    c = ConfigDict()
    c.task = ""  # which module of bert_jax.tasks: set by the functions below
    c.seed = 0  # of parameters, dropout, and the order and masks of the data
    c.init_from = ""  # a model directory in the Hugging Face layout to start from; "" = random parameters
    c.tokenizer = ""  # vocab.txt, tokenizer.json, *.model or a directory of them; "" = the data's or init_from's own
    c.dtype = "auto"  # of matrix products: float32, bfloat16, or auto (bfloat16 on accelerators, float32 on CPU)
    c.layers = "auto"  # scan compiles one layer once, unroll each of them; auto: unroll on CPU, where it runs faster
    c.remat = "auto"  # recomputed in the backward pass: none; dots, all but matrix products; full, a third more work;
    # auto: none on CPU, dots elsewhere, where memory is slower than arithmetic (docs/tpu_choices.md)
    c.attention = "auto"  # how scores become sums: xla, fused or splash (TPU), cudnn (GPU); docs/attention.md

    c.model = ConfigDict()
    c.model.size = "base"  # tiny, mini, small, medium, base, large, or a size of model.family's; the fields change it
    c.model.vocab_size = 0  # rows of the word embedding; 0 = the tokenizer's number of pieces
    for name, kind in _MODEL_FIELDS:  # as in bert_jax.BertConfig; None = as the size or the model of init_from has it
        c.model[name] = config_dict.placeholder(kind)

    c.mesh = ConfigDict()
    c.mesh.data = -1  # devices that hold whole copies of the parameters (or of each fsdp group); -1 = all that are left
    c.mesh.fsdp = 1  # devices that share one copy of parameters and optimizer state
    c.mesh.tensor = 1  # devices that share the work inside a layer; must divide the number of heads

    c.global_batch_size = 256  # examples a step, over all devices and micro-batches
    c.accumulation_steps = 1  # micro-batches a step: 1/n of the activations' memory, the same gradient
    c.num_steps = 0  # optimizer steps; 0 = from num_epochs
    c.num_epochs = 0.0  # passes over the training data when num_steps is 0

    c.optimizer = ConfigDict()
    c.optimizer.name = "adamw"  # adamw, lamb, adafactor or muon (training/optimizers.py)
    c.optimizer.learning_rate = 1e-4  # the highest rate, at the end of warm-up
    c.optimizer.warmup_steps = 0  # steps from rate 0 to the highest
    c.optimizer.warmup_ratio = 0.0  # the same as a fraction of all steps, when warmup_steps is 0
    c.optimizer.schedule = "bert_linear"  # or linear, constant, quadratic, cosine, rsqrt, wsd (training/schedules.py)
    c.optimizer.weight_decay = 0.01  # decoupled; not for biases and LayerNorm
    c.optimizer.beta1 = 0.9
    c.optimizer.beta2 = 0.999
    c.optimizer.eps = 1e-6
    c.optimizer.clip_norm = 1.0  # gradients are scaled down to this global norm; 0 = never
    c.optimizer.bias_correction = False  # False is BERT's AdamW, True is everybody else's
    c.optimizer.layer_decay = 1.0  # rate of a layer as a multiple of the rate of the one above it; for fine-tuning
    c.optimizer.frozen_layers = 0  # the lowest layers that stay as they are, and the embeddings with them; 0 = none
    c.optimizer.frozen_embeddings = False  # whether the embeddings stay as they are
    c.optimizer.average_decay = 0.0  # of a moving average of the parameters, which is evaluated and kept; 0 = the last

    c.fresh_layers = 0  # the highest layers of init_from that begin anew, and the pooler with them; 0 = none

    c.lora = ConfigDict()  # of the encoder, only what is added to some of its matrices learns (tasks/lora.py)
    c.lora.rank = 0  # of what is added; 0 = the encoder itself learns
    c.lora.alpha = 16.0  # it is added alpha / rank times
    c.lora.targets = ("query", "value")  # of query, key, value, output (attention), up, gate, down (feed-forward)

    c.data = ConfigDict()  # what to learn from: set by the functions below

    c.log_every = 100  # steps between lines of metrics.jsonl
    c.eval_every = 0  # steps between evaluations; one always runs at the end; 0 = only then
    c.eval_batch_size = 0  # examples a batch of evaluation; 0 = global_batch_size, or 32 where rows are packed
    c.checkpoint_every = 1000  # steps between checkpoints; one is always written at the end; 0 = only then
    c.max_skipped_steps = 10  # steps in a row that may be skipped for a loss or gradient that is not finite
    c.keep_checkpoints = 2  # newest checkpoints to keep, besides the best
    c.warn_after_seconds = 600  # a warning for as long as no step ends, from every host; 0 = never
    c.wandb = ""  # project at Weights & Biases that gets the metrics too; WANDB_API_KEY says whose; "" = none
    c.profile = ()  # (first step, number of steps) to trace into profile/
    c.best_metric = ""  # evaluation metric by which the finished model is chosen; "" = the last state.
    # Lower is better for names that end in loss, perplexity or mse, higher for all others.
    c.stop_after = 0  # evaluations in a row worse than the best by best_metric after which the run ends; 0 = never
    return c


def pretraining() -> ConfigDict:
    """Returns the recipe of masked-LM and next-sentence pretraining, with the paper's values as defaults."""
    c = _shared()
    c.task = "pretraining"
    c.num_steps = 1_000_000
    c.optimizer.warmup_steps = 10_000
    c.stages = ()  # ((num_steps, sequence_length, global_batch_size), ...) one after the other, as one run with one
    # schedule: sequences or batches that grow; () = one stage of num_steps, data.sequence_length and global_batch_size
    c.data.prepared = ""  # directory that `bert-jax prepare` wrote; "{sequence_length}" in it stands for the stage's
    c.data.sequence_length = 128  # tokens; shorter than what was prepared cuts pairs, longer is an error
    c.data.mask_prob = 0.15  # share of tokens to predict
    c.data.max_predictions = 0  # most tokens to predict in a sequence; 0 = mask_prob * sequence_length
    c.data.mask_unit = "token"  # what is masked: token, (whole) word or span (of words)
    c.data.hidden_share = 0.8  # share of the tokens to predict that becomes [MASK]
    c.data.random_share = 0.1  # share of them that becomes a random token; the rest stays
    c.data.static_masks = 0  # masks of an example, taken in turn by its epochs; 0 = new ones in every epoch
    c.data.eval_batches = 0  # held-out batches in an evaluation; 0 = all
    c.data.eval_sequence_length = 0  # tokens of held-out examples; 0 = those of the stage with the most steps
    return c.lock()


def electra() -> ConfigDict:
    """Returns the recipe of replaced-token detection, with the paper's small models as defaults."""
    c = pretraining().unlock()
    c.task = "electra"
    c.model.family, c.model.size = "electra", "small"
    c.model.generator_size = 0.25  # width of the generator as a share of the discriminator's: heads and feed-forward
    c.discriminator_weight = 50.0  # of its loss, the generator's having 1
    c.data.hidden_share, c.data.random_share = 1.0, 0.0
    return c.lock()


def _fine_tuning(task: str, batch_size: int, epochs: float, learning_rate: float) -> ConfigDict:
    """The keys that every task but pretraining has."""
    c = _shared()
    c.task = task
    c.global_batch_size, c.num_epochs = batch_size, epochs
    c.optimizer.learning_rate, c.optimizer.warmup_ratio = learning_rate, 0.1
    c.data.dev = ""  # the same, for evaluation; "" = none
    c.data.dev_share = 0.0  # of the training rows, that are held out to evaluate on; without dev (data/splitting.py)
    c.data.split_seed = 0  # of which they are
    c.data.bad_rows = "strict"  # rows that do not fit: an error that names the first, or skip: passed over and counted
    c.data.length_buckets = ()  # batches of similar length are padded to one of these; () = chosen from the data
    return c


def classification() -> ConfigDict:
    """Returns the recipe of fine-tuning on one sentence or a pair, for classes or (task_type) a number."""
    c = _fine_tuning("classification", batch_size=32, epochs=3.0, learning_rate=3e-5)
    c.label_smoothing = 0.0  # share of a label that is spread evenly over all classes
    c.r_drop = 0.0  # weight of the divergence between two passes with different dropout: twice the work; 0 = one pass
    c.data.train = ""  # .tsv, .csv, .jsonl or tfds:NAME:SPLIT
    c.data.task_type = "classification"  # or multi_label (several labels a text, or none), or regression
    c.data.label_separator = ","  # of multi_label: what stands between labels; JSON lines may have lists
    c.data.class_weights = ""  # balanced: rare classes weigh as much as common ones; "" = every row as much
    c.data.text_column = "sentence"
    c.data.pair_column = ""  # the second text; "" = single sentences
    c.data.label_column = "label"
    c.data.has_header = True  # the first line names the columns; False: columns are numbers from 0, as text: "3"
    c.data.metrics = ()  # of accuracy, f1, matthews; micro_f1, macro_f1; pearson, spearman, mse; () = all that fit
    c.data.max_seq_length = 128  # tokens; longer texts are cut
    c.data.long_texts = "cut"  # or windows, of single texts: each is learned from, and their answers are averaged
    c.data.doc_stride = 0  # tokens from the beginning of one window to that of the next; 0 = half of a row
    c.data.packing = 0  # tokens of rows with several texts each, of which global_batch_size are a step; 0 = one a row
    c.data.token_dropout = 0.0  # share of the tokens that each step of training hides behind [MASK]
    return c.lock()


def token_classification() -> ConfigDict:
    """Returns the recipe of fine-tuning on sentences with a tag for each word: entities, parts of speech."""
    c = _fine_tuning("token_classification", batch_size=32, epochs=3.0, learning_rate=5e-5)
    c.data.train = ""  # CoNLL (.conll, .txt, .tsv, .iob, .bio), .jsonl or tfds:NAME:SPLIT
    c.data.text_column = ""  # of the words: a number from 0 in CoNLL, "" = the first; a name elsewhere, "" = tokens
    c.data.label_column = ""  # of the tags: a number from 0 in CoNLL, "" = the last; a name elsewhere, "" = tags
    c.data.metrics = ()  # of f1, precision, recall, accuracy, and types (the first three for each type of entity);
    # () = all that fit but types
    c.data.max_seq_length = 128  # tokens; longer sentences become windows that overlap
    c.data.packing = (
        0  # tokens of rows with several sentences each, of which global_batch_size are a step; 0 = one a row
    )
    return c.lock()


def multiple_choice() -> ConfigDict:
    """Returns the recipe of fine-tuning on questions with a number of choices, one of which is right."""
    c = _fine_tuning("multiple_choice", batch_size=16, epochs=3.0, learning_rate=2e-5)
    c.data.train = ""  # .jsonl, .csv, .tsv or tfds:NAME:SPLIT
    c.data.context_column = "context"
    c.data.question_column = ""  # a text that stands before every choice; "" = none
    c.data.choice_columns = ("choices",)  # of a text each; one alone holds a list of texts (JSON lines, TFDS)
    c.data.label_column = "label"  # the number of the right choice from 0, or its letter from A
    c.data.has_header = True  # the first line names the columns; False: columns are numbers from 0, as text: "3"
    c.data.max_seq_length = 128  # tokens of a context with a choice; longer texts are cut
    return c.lock()


def question_answering() -> ConfigDict:
    """Returns the recipe of answering questions with passages of a text, with the paper's values for SQuAD 1.1."""
    c = _fine_tuning("question_answering", batch_size=32, epochs=3.0, learning_rate=5e-5)
    c.data.train = ""  # SQuAD's .json, version 1.1 or 2.0, maybe compressed, or tfds:NAME:SPLIT like TFDS's squad
    c.data.max_seq_length = 384  # tokens of question and context; longer contexts are cut into windows
    c.data.doc_stride = 128  # tokens from the beginning of one window to that of the next
    c.data.packing = 0  # tokens of rows with several windows each, of which global_batch_size are a step; 0 = one a row
    c.data.max_query_length = 64  # tokens of a question; the rest is cut off
    c.data.max_answer_length = 30  # tokens of the longest answer that is looked for
    c.data.n_best = 20  # likeliest beginnings and ends of a window that are tried with each other; 0 = all
    c.data.null_threshold = 0.0  # version 2.0: no answer where its score is above the best passage's by more than this
    return c.lock()


def sentence_embedding() -> ConfigDict:
    """Returns the recipe of sentence embeddings from pairs or triplets of texts."""
    c = _fine_tuning("sentence_embedding", batch_size=32, epochs=1.0, learning_rate=2e-5)
    c.data.train = ""  # .tsv, .csv, .jsonl or tfds:NAME:SPLIT
    c.data.loss = "in_batch_negatives"  # or cosine (of labelled pairs) or triplet (tasks/sentence_embedding.py)
    c.data.scale = 20.0  # in_batch_negatives: of cosines before the softmax
    c.data.label_scale = 1.0  # cosine: the label of texts that mean the same
    c.data.distance = "euclidean"  # triplet: or cosine
    c.data.margin = 1.0  # triplet: by how much the negative is to be farther than the pair
    c.data.text_column = "sentence1"
    c.data.pair_column = "sentence2"
    c.data.negative_column = ""  # a text unlike the first: needed by triplet, used by in_batch_negatives; "" = none
    c.data.label_column = ""  # how alike a pair is: needed by cosine; else for evaluation alone; "" = none
    c.data.has_header = True  # the first line names the columns; False: columns are numbers from 0, as text: "3"
    c.data.metrics = ()  # of spearman, pearson or, without labels, retrieval_accuracy, mrr; () = all that fit
    c.data.max_seq_length = 128  # tokens; longer texts are cut
    return c.lock()


PRETRAINING: dict[str, Callable[[], ConfigDict]] = {"pretraining": pretraining, "electra": electra}
RECIPES = PRETRAINING | {
    "classification": classification,
    "token_classification": token_classification,
    "question_answering": question_answering,
    "sentence_embedding": sentence_embedding,
    "multiple_choice": multiple_choice,
}


def stages(recipe: ConfigDict) -> tuple[tuple[int, int, int], ...]:
    """The stages of a pretraining recipe: `(num_steps, sequence_length, global_batch_size)` each."""
    if recipe.stages:
        return tuple(tuple(stage) for stage in recipe.stages)
    return ((recipe.num_steps, recipe.data.sequence_length, recipe.global_batch_size),)


def batch_size_at(recipe: ConfigDict, step: int) -> int:
    """The number of examples in the batch of `step`, counted from 0."""
    ends = itertools.accumulate(stage[0] for stage in recipe.get("stages", ()))
    sizes = (stage[2] for stage in recipe.get("stages", ()))
    return next((size for end, size in zip(ends, sizes, strict=True) if step < end), recipe.global_batch_size)


def model_config(recipe: ConfigDict, base: BertConfig | None = None, **changes: Any) -> BertConfig:
    """The architecture that `recipe.model` describes: `base` (say, of init_from) or the named size, then its fields.

    `changes` (say, vocab_size from the tokenizer) come last. Raises InputError when it is not one.
    """
    given = {name: recipe.model[name] for name, _ in _MODEL_FIELDS if recipe.model[name] is not None}
    if recipe.model.vocab_size:
        given["vocab_size"] = recipe.model.vocab_size
    given |= changes
    return base.replace(**given) if base is not None else BertConfig.named(recipe.model.size, **given)
