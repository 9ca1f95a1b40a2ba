"""The recipe keys of every task or of several tasks: default, meaning, choices and range of each.

The keys of one task are in its `recipe.py`.
"""

import functools
from typing import Any

from bert_jax.config.quantization import GROUP_SIZE, KEEP, TRAINED_MODES
from bert_jax.data.invalid_rows import RULES
from bert_jax.recipes.base import CONTENT, EVALUATIONS, LENGTH, OUTPUT, SPREAD, Key
from bert_jax.recipes.model_keys import model_keys
from bert_jax.recipes.optimization import OPTIMIZERS, SCHEDULES

DTYPE_CHOICES = ("auto", "float32", "bfloat16")
DISTANCES = ("cosine", "squared", "similarities")

# Keys that several tasks have, each with its own default, meaning or range.
training_data = functools.partial(
    Key, "", may_change=CONTENT, synonyms="train_file train_data training_data train_path dataset"
)
max_seq_length = functools.partial(
    Key, synonyms="max_length max_len max_seq_len seq_length seq_len sequence_length maxlen truncation"
)
column = functools.partial(Key, may_change=CONTENT)
text_column = functools.partial(
    column,
    synonyms="text text_field sentence_column sentence sentence1 input_column sentence1_key text_column_name",
)
pair_column = functools.partial(column, synonyms="text_pair sentence2 pair sentence2_key second_text text_b")
label_column = functools.partial(column, synonyms="labels label target target_column label_field label_column_name")
label_smoothing = functools.partial(Key, 0.0, least=0, below=1, synonyms="label_smoothing_factor smoothing")

_OPTIMIZER = {
    "optimizer.name": Key("adamw", "the optimizer", OPTIMIZERS),
    "optimizer.learning_rate": Key(1e-4, "peak learning rate, reached at the end of warm-up", least=0,
                                   synonyms="lr base_lr peak_lr max_lr init_lr"),
    "optimizer.warmup_steps": Key(0, "steps in which the learning rate rises linearly from 0 to its peak", least=0,
                                  synonyms="num_warmup_steps warmup warmup_iters"),
    "optimizer.warmup_ratio": Key(0.0, "warm-up as a fraction of all steps; used when warmup_steps is 0", least=0,
                                  below=1, synonyms="warmup_proportion warmup_fraction warmup_share"),
    "optimizer.schedule": Key("bert_linear", "learning-rate schedule after warm-up", SCHEDULES,
                              synonyms="lr_scheduler_type lr_scheduler lr_schedule scheduler decay"),
    "optimizer.weight_decay": Key(0.01, "decoupled weight decay; biases and LayerNorm have none", least=0,
                                  synonyms="wd l2 weight_decay_rate"),
    "optimizer.beta1": Key(0.9, "decay of Adam's moving average of gradients", least=0, below=1,
                           synonyms="adam_beta1 momentum b1"),
    "optimizer.beta2": Key(0.999, "decay of Adam's moving average of squared gradients", least=0, below=1,
                           synonyms="adam_beta2 b2"),
    "optimizer.eps": Key(1e-6, "added to the square root of the average of squared gradients", above=0,
                         synonyms="adam_epsilon epsilon adam_eps"),
    "optimizer.clip_norm": Key(1.0, "global norm to which gradients are clipped; 0 = no clipping", least=0,
                               synonyms="max_grad_norm grad_clip gradient_clipping clip_grad_norm gradient_clip_val "
                                        "clip"),
    "optimizer.bias_correction": Key(False, "whether Adam corrects the bias of its averages; the original BERT does "
                                     "not", synonyms="correct_bias"),
    "optimizer.layer_decay": Key(1.0, "learning rate of a layer as a multiple of the learning rate of the layer above "
                                 "it", above=0,
                                 synonyms="layerwise_lr_decay layer_wise_lr_decay llrd layerwise_decay "
                                          "layerwise_lr_decay_power"),
    "optimizer.frozen_layers": Key(0, "number of lowest layers that are frozen, with the embeddings; 0 = none",
                                   least=0, synonyms="freeze_layers num_frozen_layers freeze"),
    "optimizer.frozen_embeddings": Key(False, "whether the embeddings are frozen", synonyms="freeze_embeddings"),
    "optimizer.average_decay": Key(0.0, "decay of a moving average of the parameters, which is evaluated and saved in "
                                   "their place; 0 = no average", least=0, below=1, synonyms="ema ema_decay polyak"),
}  # fmt: skip

_DISTILLATION = {
    "distillation.teacher": Key("", "model directory of the teacher; empty = no distillation", may_change=CONTENT,
                                synonyms="teacher_model teacher_name teacher_name_or_path teacher_path"),
    "distillation.student_layers": Key((), "layers of the teacher, from 0, that the student starts from; () = the "
                                       "student is init_from, or has random parameters"),
    "distillation.student_embeddings": Key(False, "initialise the embeddings of a student narrower than the teacher "
                                           "from the principal components of the teacher's embeddings"),
    "distillation.cache": Key("", "directory of the teacher's outputs for all training rows, computed once; empty = "
                              "the teacher runs in every step", may_change=CONTENT),
    "distillation.weights.labels": Key(1.0, "weight of the task's own loss; 0 = labels of data.train are not read",
                                       least=0),
    "distillation.weights.soft_labels": Key(0.0, "weight of the divergence from the teacher's predictions", least=0,
                                            synonyms="kd_loss alpha_ce kd_alpha logits"),
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
    "distillation.relation_heads": Key(0, "number of heads into which queries, keys and values are split for "
                                       "relations; 0 = the teacher's number of attention heads", least=0),
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
    "init_from": Key("", "model directory to start from, local or gs://; empty = random parameters",
                     may_change=CONTENT,
                     synonyms="model_name_or_path init_checkpoint pretrained model_path checkpoint base_model "
                              "model_name"),
    "tokenizer": Key("", "tokenizer file or directory; empty = the tokenizer of the prepared data or of init_from",
                     may_change=CONTENT, synonyms="tokenizer_name vocab vocab_file tokenizer_name_or_path"),
    "dtype": Key("auto", "type of matrix products; auto = bfloat16 on accelerators, float32 on CPU", DTYPE_CHOICES,
                 synonyms="fp16 bf16 precision mixed_precision compute_dtype torch_dtype amp"),
    "layers": Key("auto", "scan = compile one layer and loop over it, unroll = compile each layer; auto = unroll on "
                  "CPU, else scan", ("auto", "scan", "unroll"), may_change=SPREAD, synonyms="scan scan_layers unroll"),
    "remat": Key("auto", "rematerialisation in the backward pass: none, dots = all but matrix products, full = "
                 "everything; auto = none on CPU, else dots", ("auto", "none", "dots", "full"), may_change=SPREAD,
                 synonyms="gradient_checkpointing checkpointing activation_checkpointing rematerialization recompute"),
    "attention": Key("auto", "attention backend: fused and splash are for TPU, cudnn for GPU (docs/attention.md)",
                     ("auto", "xla", "fused", "splash", "cudnn"), may_change=SPREAD,
                     synonyms="attn_implementation attention_implementation flash_attention"),
    "reduce_dtype": Key("float32", "type in which devices sum gradients; bfloat16 (with dtype=bfloat16) halves that "
                        "traffic and gathers weights once a step", ("float32", "bfloat16")),
    **model_keys(),
    "mesh.data": Key(-1, "number of copies of the parameters, each on its own fsdp * tensor devices; -1 = all "
                     "remaining devices", may_change=SPREAD, synonyms="data_parallel dp"),
    "mesh.fsdp": Key(1, "devices over which a copy of parameters and optimizer state is sharded; -1 = all remaining "
                     "devices", may_change=SPREAD, synonyms="zero sharded model_parallel"),
    "mesh.tensor": Key(1, "devices over which heads and feed-forward units are split; must divide the number of heads",
                       may_change=SPREAD, synonyms="tensor_parallel tp"),
    "global_batch_size": Key(256, "examples in a step, over all devices and micro-batches", least=1,
                             synonyms="batch_size train_batch_size per_device_train_batch_size batch bs "
                                      "minibatch_size"),
    "accumulation_steps": Key(1, "micro-batches per step; n micro-batches need 1/n of the activation memory, with the "
                              "same gradient", least=1,
                              synonyms="gradient_accumulation_steps grad_accum accumulate_grad_batches"),
    "num_steps": Key(0, "number of optimizer steps; 0 = computed from num_epochs", least=0, below=2**31,
                     may_change=LENGTH,
                     synonyms="steps max_steps num_train_steps total_steps train_steps training_steps iterations "
                              "max_iters"),
    "num_epochs": Key(0.0, "passes over the training data; used when num_steps is 0", least=0, may_change=LENGTH,
                      synonyms="epochs num_train_epochs max_epochs n_epochs epoch"),
    **_OPTIMIZER,
    "reinit_layers": Key(0, "number of highest layers of init_from that are reinitialised, with the pooler; 0 = none",
                        least=0, synonyms="reinit_n_layers", former="fresh_layers"),
    "lora.rank": Key(0, "rank of LoRA, which trains only the added matrices; 0 = no LoRA", least=0,
                     synonyms="lora_r r lora_rank"),
    "lora.alpha": Key(16.0, "LoRA's update is scaled by alpha / rank", above=0, synonyms="lora_alpha"),
    "lora.targets": Key(("query", "value"), "matrices that LoRA adapts: any of query, key, value, output, up, gate, "
                        "down", synonyms="target_modules lora_targets"),
    **_DISTILLATION,
    "quantization.mode": Key("", "quantization-aware training: mode of the finished model, whose rounding each forward "
                             "pass applies; empty = none", ("", *TRAINED_MODES)),
    "quantization.group_size": Key(GROUP_SIZE, "mode int4: number of inputs of a dense layer that share a scale",
                                   least=2),
    "quantization.keep": Key(KEEP, "patterns (with * and ?) of paths of parameters that stay float32"),
    "log_every": Key(0, "steps between lines of metrics.jsonl; 0 = 100, or a 20th of the steps in a short run",
                     least=0, may_change=OUTPUT, synonyms="logging_steps log_interval log_steps log_every_n_steps"),
    "eval_every": Key(0, "steps between evaluations; 0 = only at the end", least=0, may_change=EVALUATIONS,
                      synonyms="eval_steps evaluation_steps eval_interval eval_freq evaluation_strategy eval_strategy"),
    "eval_batch_size": Key(0, "examples in a batch of evaluation; 0 = global_batch_size, or more with packing",
                           least=0, may_change=EVALUATIONS,
                           synonyms="per_device_eval_batch_size dev_batch_size valid_batch_size test_batch_size"),
    "checkpoint_every": Key(1000, "steps between checkpoints; 0 = only at the end", least=0, may_change=OUTPUT,
                            synonyms="save_steps save_every save_interval checkpoint_steps save_checkpoints_steps "
                                     "save_strategy"),
    "max_skipped_steps": Key(10, "consecutive steps that may be skipped because their loss or gradient is not finite",
                             least=0, may_change="after how many skipped steps a diverging run ends"),
    "keep_checkpoints": Key(2, "number of newest checkpoints to keep, besides the best", least=1, may_change=OUTPUT,
                            synonyms="save_total_limit max_to_keep keep_checkpoint_max keep"),
    "warn_after_seconds": Key(600, "every host warns after this number of seconds without a finished step; 0 = never",
                              least=0, may_change=OUTPUT),
    "wandb": Key("", "Weights & Biases project to which metrics are logged too; empty = none", may_change=OUTPUT,
                 synonyms="report_to wandb_project"),
    "profile": Key((), "(first step, number of steps) to profile, written to profile/; () = none", may_change=OUTPUT),
    "best_metric": Key("", "evaluation metric that selects the checkpoint to save as the model (lower is better for "
                       "loss, perplexity and mse); empty = the last step",
                       may_change="the finished model is the best of the checkpoints that were evaluated by the new "
                                  "metric", synonyms="metric_for_best_model monitor load_best_model_at_end"),
    "stop_after": Key(0, "early stopping: the run ends after this number of consecutive evaluations without a new "
                      "best; 0 = never", least=0, may_change=EVALUATIONS,
                      synonyms="early_stopping early_stopping_patience patience"),
}  # fmt: skip

FINE_TUNING_KEYS = {
    "keep_head": Key(False, "whether training starts from the trained head of init_from, whose classes must be those "
                     "of the data"),
    "data.train": training_data("training data: .tsv, .csv, .jsonl or tfds:NAME:SPLIT"),
    "data.dev": Key("", "evaluation data, in the formats of data.train; empty = none", may_change=CONTENT,
                    synonyms="validation_file dev_file eval_file valid validation val test eval dev_data eval_data "
                             "validation_data"),
    "data.validation_split": Key(0.0, "fraction of the rows that is held out for evaluation; used without data.dev",
                                 least=0, below=1, may_change=CONTENT, former="data.dev_share",
                                 synonyms="val_split dev_split test_size validation_fraction dev_fraction"),
    "data.split_seed": Key(0, "seed of the choice of rows for data.validation_split", least=0, below=2**31,
                           may_change=CONTENT),
    "data.invalid_rows": Key("strict", "invalid rows: strict = stop with an error that names the first, skip = "
                             "skip and count them", RULES, may_change=CONTENT,
                             synonyms="bad_rows skip_bad_rows skip_invalid_rows on_bad_lines", former="data.bad_rows"),
    "data.length_buckets": Key((), "padded lengths of batches; () = chosen from the data",
                               synonyms="buckets bucket_boundaries"),
    "data.max_seq_length": max_seq_length(128, "maximum number of tokens in an example; longer texts are cut", least=3),
}  # fmt: skip
# Keys for reading a table, besides the names of its columns.
TABLE_KEYS = {
    "data.delimiter": Key("", "character between the columns of a CSV, or tab; empty = detected from its first lines",
                          may_change=CONTENT),
    "data.encoding": Key("", "encoding of TSV, CSV and JSON lines, such as cp1252; empty = UTF-8, or that of the byte "
                         "order mark", may_change=CONTENT),
}  # fmt: skip
HAS_HEADER = Key(True, 'whether the first line names the columns; without it columns are named by number, from 0: "3"',
                 may_change=CONTENT)  # fmt: skip
PACKING = Key(0, "tokens in a row of packed examples; a step has global_batch_size rows; 0 = one example per row",
               least=0, synonyms="pack sequence_packing")  # fmt: skip
DOC_STRIDE = "tokens from the start of one window to the start of the next"


def fine_tuning(batch_size: int, epochs: float, learning_rate: float) -> dict[str, Any]:
    """Return the defaults of a fine-tuning task: the learning rate rises in the first tenth of the steps."""
    batches = {"global_batch_size": batch_size, "num_epochs": epochs}
    return {**batches, "optimizer.learning_rate": learning_rate, "optimizer.warmup_ratio": 0.1}
