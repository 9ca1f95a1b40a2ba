"""Names that other libraries and papers use, for `did you mean` hints.

Names are compared in lower case, with `-` and ` ` replaced by `_`. Synonyms of recipe keys and config fields are
declared with the key or field.
"""

from collections.abc import Mapping, Sequence

# Name in bert_jax -> names elsewhere.
_OTHER_NAMES = {
    # options of pipelines, which some recipes have too
    "doc_stride": "stride overlap",
    "seed": "random_seed rng_seed random_state",
    "temperature": "t softmax_temperature kd_temperature",
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
    "reranking": "rerank reranker cross_encoder crossencoder ranking",
    "relation_extraction": "re tacred docred relation relation_classification relations",
    "multiple_choice": "mc choice swag race bertformultiplechoice",
    "replaced_token_detection": "rtd discriminator electra electraforpretraining",
    "sentence_embedding": "embedding embeddings sentence_transformer sentence_transformers sbert bi_encoder sts",
    "sparse_embedding": "splade sparse_encoder sparse lexical mlm_transformer",
    "multi_vector": "colbert late_interaction multi_vector_encoder token_embeddings pylate maxsim",
    "electra": "rtd replaced_token_detection",
    "squad": "qa question_answer",
    "conll2003": "conll conll03",
    "part_of_speech": "pos upos xpos udpos universal_dependencies conllu",
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
    "tsdae": "denoisingautoencoderloss denoising_autoencoder",
    "simcse": "unsupervised_simcse unsup_simcse",
    "cosent": "cosentloss",
    "mine-negatives": "mine hard_negatives mine_hard_negatives mine-hard-negatives",
    "margin_mse": "marginmse marginmseloss",
    "angle": "angleloss",
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


def names_here(name: str, choices: Sequence[str], synonyms: Mapping[str, str] | None = None) -> list[str]:
    """Return the choices that other libraries call `name`, or that differ from it only in case and hyphens.

    Args:
        name: the name.
        choices: the names in bert_jax.
        synonyms: choice -> its names elsewhere, separated by spaces, in addition to those of this module.
    """
    plain_name = _plain(name)
    declared = synonyms or {}
    same = [choice for choice in choices if _plain(choice) == plain_name]
    return same or [
        choice
        for choice in choices
        if plain_name in f"{_OTHER_NAMES.get(_plain(choice), '')} {declared.get(choice, '')}".split()
    ]
