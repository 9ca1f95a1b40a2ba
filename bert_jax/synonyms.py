"""Names that other libraries and papers use, for `did you mean` hints.

Names are compared in lower case, `-` and ` ` as `_`.
"""

# Name here -> names elsewhere.
_OTHER_NAMES = {
    # recipe keys
    "global_batch_size": "batch_size train_batch_size per_device_train_batch_size batch bs minibatch_size",
    "eval_batch_size": "per_device_eval_batch_size dev_batch_size valid_batch_size test_batch_size",
    "accumulation_steps": "gradient_accumulation_steps grad_accum accumulate_grad_batches",
    "num_epochs": "epochs num_train_epochs max_epochs n_epochs epoch",
    "num_steps": "steps max_steps num_train_steps total_steps train_steps training_steps iterations max_iters",
    "learning_rate": "lr base_lr peak_lr max_lr init_lr",
    "warmup_steps": "num_warmup_steps warmup warmup_iters",
    "warmup_ratio": "warmup_proportion warmup_fraction warmup_share",
    "schedule": "lr_scheduler_type lr_scheduler lr_schedule scheduler decay",
    "weight_decay": "wd l2 weight_decay_rate",
    "beta1": "adam_beta1 momentum b1",
    "beta2": "adam_beta2 b2",
    "eps": "adam_epsilon epsilon adam_eps",
    "clip_norm": "max_grad_norm grad_clip gradient_clipping clip_grad_norm gradient_clip_val clip",
    "bias_correction": "correct_bias",
    "layer_decay": "layerwise_lr_decay layer_wise_lr_decay llrd layerwise_decay layerwise_lr_decay_power",
    "frozen_layers": "freeze_layers num_frozen_layers freeze",
    "frozen_embeddings": "freeze_embeddings",
    "average_decay": "ema ema_decay polyak",
    "fresh_layers": "reinit_layers reinit_n_layers",
    "remat": "gradient_checkpointing checkpointing activation_checkpointing rematerialization recompute",
    "dtype": "fp16 bf16 precision mixed_precision compute_dtype torch_dtype amp",
    "layers": "scan scan_layers unroll",
    "attention": "attn_implementation attention_implementation flash_attention",
    "log_every": "logging_steps log_interval log_steps log_every_n_steps",
    "eval_every": "eval_steps evaluation_steps eval_interval eval_freq evaluation_strategy eval_strategy",
    "checkpoint_every": "save_steps save_every save_interval checkpoint_steps save_checkpoints_steps save_strategy",
    "keep_checkpoints": "save_total_limit max_to_keep keep_checkpoint_max keep",
    "best_metric": "metric_for_best_model monitor load_best_model_at_end",
    "stop_after": "early_stopping early_stopping_patience patience",
    "init_from": "model_name_or_path init_checkpoint pretrained model_path checkpoint base_model model_name",
    "tokenizer": "tokenizer_name vocab vocab_file tokenizer_name_or_path",
    "seed": "random_seed rng_seed random_state",
    "wandb": "report_to wandb_project",
    "train": "train_file train_data training_data train_path dataset",
    "dev": "validation_file dev_file eval_file valid validation val test eval dev_data eval_data validation_data",
    "dev_share": "validation_split val_split dev_split test_size validation_fraction dev_fraction",
    "invalid_rows": "bad_rows skip_bad_rows skip_invalid_rows on_bad_lines",
    "length_buckets": "buckets bucket_boundaries",
    "max_seq_length": "max_length max_len max_seq_len seq_length seq_len sequence_length maxlen truncation",
    "sequence_length": "max_length max_len max_seq_len seq_length seq_len max_seq_length maxlen",
    "mask_prob": "mlm_probability masked_lm_prob masking_prob mask_ratio mask_rate mlm_prob",
    "max_predictions": "max_predictions_per_seq max_predictions_per_sequence",
    "mask_unit": "whole_word_masking wwm do_whole_word_mask mask_strategy",
    "task_type": "problem_type is_regression",
    "class_weights": "class_weight weights pos_weight",
    "text_column": "text text_field sentence_column sentence sentence1 input_column sentence1_key text_column_name",
    "pair_column": "text_pair sentence2 pair sentence2_key second_text text_b",
    "label_column": "labels label target target_column label_field label_column_name",
    "label_smoothing": "label_smoothing_factor smoothing",
    "doc_stride": "stride overlap",
    "max_query_length": "max_question_length",
    "max_answer_length": "max_answer_len",
    "n_best": "n_best_size",
    "null_threshold": "null_score_diff_threshold version_2_with_negative",
    "packing": "pack sequence_packing",
    "prepared": "data_dir train_dir shards input_file tfrecords",
    "stages": "curriculum phases",
    "teacher": "teacher_model teacher_name teacher_name_or_path teacher_path",
    "temperature": "t softmax_temperature kd_temperature",
    "soft_labels": "kd_loss alpha_ce kd_alpha logits",
    "rank": "lora_r r lora_rank",
    "alpha": "lora_alpha",
    "targets": "target_modules lora_targets",
    "hidden_dropout_prob": "dropout dropout_rate hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout attn_dropout",
    "num_hidden_layers": "num_layers n_layers n_layer depth",
    "num_attention_heads": "num_heads n_heads n_head",
    "hidden_size": "d_model hidden_dim embed_dim dim",
    "intermediate_size": "d_ff ffn_dim mlp_dim",
    "max_position_embeddings": "max_positions n_positions",
    "hidden_act": "activation activation_function hidden_activation",
    "data": "data_parallel dp",
    "fsdp": "zero sharded model_parallel",
    "tensor": "tensor_parallel tp",
    # heads, tasks, recipes and pipelines
    "encoder": "none base bert headless bertmodel feature_extraction",
    "pretraining": "pretrain nsp bertforpretraining mlm_nsp",
    "masked_lm": "mlm maskedlm bertformaskedlm fill_mask lm",
    "fill_mask": "mlm masked_lm unmask",
    "next_sentence": "nsp next_sentence_prediction bertfornextsentenceprediction",
    "sequence_classification": "classification text_classification classifier classify sequence_classifier "
    "bertforsequenceclassification regression sentiment glue cross_encoder",
    "text_classification": "classification sequence_classification sentiment",
    "classification": "text_classification sequence_classification sentiment glue classify regression",
    "token_classification": "ner pos tagging tag tagger token_classifier bertfortokenclassification",
    "question_answering": "qa span squad bertforquestionanswering answer",
    "multiple_choice": "mc choice swag race bertformultiplechoice",
    "replaced_token_detection": "rtd discriminator electra electraforpretraining",
    "sentence_embedding": "embedding embeddings sentence_transformer sentence_transformers sbert bi_encoder sts",
    "sparse_embedding": "splade sparse_encoder sparse lexical mlm_transformer",
    "multi_vector": "colbert late_interaction multi_vector_encoder token_embeddings pylate maxsim",
    "electra": "rtd replaced_token_detection",
    "squad": "qa question_answer",
    "conll2003": "conll conll03",
    "bert_base": "base bert pretrain",
    "bert_large": "large",
    # values
    "adamw": "adam adamw_torch bert_adam adamweightdecay",
    "bert_linear": "warmup_linear linear_with_warmup",
    "constant": "constant_with_warmup none flat",
    "cosine": "cosine_with_warmup cosine_decay",
    "quadratic": "polynomial poly",
    "rsqrt": "inverse_sqrt invsqrt noam",
    "wsd": "warmup_stable_decay trapezoidal",
    "float32": "fp32 float f32 full single",
    "float16": "fp16 half f16",
    "bfloat16": "bf16 bfloat fp16 float16 half mixed",
    "xla": "eager plain default sdpa math",
    "cudnn": "flash flash_attention flash_attention_2 sdpa",
    "fused": "flash flash_attention pallas",
    "word": "whole_word wwm",
    "dots": "dots_saveable selective",
    "in_batch_negatives": "multiple_negatives_ranking mnrl contrastive infonce multiplenegativesrankingloss",
    "multi_label": "multilabel multi_label_classification",
    "strict": "error raise",
    "skip": "ignore drop warn",
    "accuracy": "acc",
    "matthews": "mcc matthews_correlation matthews_corrcoef",
    "macro_f1": "f1_macro",
    "micro_f1": "f1_micro",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    # verbs and flags
    "pretrain": "train",
    "distill": "distil distillation kd student",
    "finetune": "train fine_tune tune fit training finetuning",
    "evaluate": "eval test score validate",
    "predict": "infer inference run",
    "classify": "classification sentiment",
    "tag": "ner pos token_classification",
    "answer": "qa ask question_answering",
    "embed": "encode embedding embeddings similarity",
    "search": "retrieve similarity semantic_search",
    "convert": "export import",
    "inspect": "info show summary describe",
    "prepare": "preprocess create_pretraining_data tokenize",
    "train_tokenizer": "tokenizer vocab train_vocab build_vocab",
    "config": "recipe recipes configs keys help params options",
    "plan": "estimate memory",
    "__config": "__recipe __config_file",
    "__workdir": "__output_dir __work_dir __logdir __model_dir",
    "__out": "__output __output_file __output_dir __save",
    "__model": "__model_path __model_name_or_path __checkpoint",
    "__batch_size": "__bs __per_device_eval_batch_size",
    "__max_seq_length": "__max_length __max_len __seq_length",
    "__text_column": "__text __column __text_field",
    "__label_column": "__label __labels __target",
    "__topology": "__tpu __type __accelerator_type",
    # families and chips
    "xlm_roberta": "xlmr xlm_r",
    "v5e": "v5 v5lite v5_lite v5litepod tpu_v5_lite_podslice tpu_v5_lite_device",
    "v5p": "v5 tpu_v5p_slice",
    "v4": "tpu_v4_podslice",
    "v6e": "v6 trillium tpu_v6e_slice",
    "tpu7x": "v7 v7x tpu7 ironwood tpuv7",
}


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")


def _by_other_name() -> dict[str, set[str]]:
    here: dict[str, set[str]] = {}
    for name, others in _OTHER_NAMES.items():
        for other in others.split():
            here.setdefault(other, set()).add(name)
    return here


_HERE = _by_other_name()


def names_here(name: str, choices: list[str]) -> list[str]:
    """Return the choices that other libraries call `name`, or that differ from it only in case and hyphens."""
    wanted = _plain(name)
    here = _HERE.get(wanted, set())
    same = [choice for choice in choices if _plain(choice) == wanted]
    return same or [choice for choice in choices if _plain(choice) in here]
