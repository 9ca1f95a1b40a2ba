"""Keys of peft's adapter_config.json: LoRA (Hu et al. 2021, arXiv:2106.09685) is merged, other adapters are refused."""

from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

ADAPTER: tuple[FileKey, ...] = (
    refused("peft_type", "of peft's adapters only LoRA is merged", "LORA"),
    honoured("base_model_name_or_path", "the model that the adapter was trained on"),
    honoured("task_type", "the head"),
    honoured("auto_mapping", "the class of the base model, which says the head"),
    honoured("r", "rank of the update"),
    honoured("lora_alpha", "the update is scaled by lora_alpha / r"),
    honoured("use_rslora", "or by lora_alpha / sqrt(r) (Kalajdzievski 2023, arXiv:2312.03732)"),
    honoured("rank_pattern", "ranks of some layers"),
    honoured("alpha_pattern", "lora_alpha of some layers"),
    honoured("fan_in_fan_out", "whether the layers are kept transposed; dense layers of these families are not"),
    honoured("bias", "whether biases were trained: those in the file are taken"),
    honoured("modules_to_save", "layers that are whole in the file"),
    harmless("target_modules", "which layers have an update; the file's tensors say it"),
    harmless("exclude_modules", "which layers have none; the file's tensors say it"),
    harmless("layers_to_transform", "which layers have an update; the file's tensors say it"),
    harmless("layers_pattern", "which layers have an update; the file's tensors say it"),
    harmless("target_parameters", "which layers have an update; the file's tensors say it"),
    harmless("lora_dropout", "dropout in training"),
    harmless("inference_mode", "whether it is trained further"),
    harmless("revision", "of the base model on the hub"),
    harmless("peft_version", "who wrote the file"),
    harmless("corda_config", "how training began"),
    harmless("eva_config", "how training began"),
    harmless("lora_ga_config", "how training began"),
    harmless("loftq_config", "how training began"),
    harmless("runtime_config", "how training ran"),
    harmless("megatron_config", "how training ran"),
    harmless("megatron_core", "how training ran"),
    harmless("ensure_weight_tying", "how training ran"),
    harmless("qalora_group_size", "only with use_qalora"),
    refused("init_lora_weights", "an initialisation that changes the base model's weights", True, False, "gaussian",
            "orthogonal", "eva"),
    refused("use_dora", "DoRA is not supported", False),
    refused("use_qalora", "QALoRA is not supported", False),
    refused("use_bdlora", "block-diagonal LoRA is not supported", False, {}),
    refused("alora_invocation_tokens", "activated LoRA is not supported", []),
    refused("arrow_config", "a mixture of adapters is not supported", {}),
    refused("lora_bias", "a bias beside the update is not supported", False),
    refused("kasa_config", "KaSA is not supported", {}),
    refused("monteclora_config", "MonteCLoRA is not supported", {}),
    refused("velora_config", "VeLoRA is not supported", {}),
    refused("layer_replication", "repeated layers are not supported", []),
    refused("trainable_token_indices", "tokens trained one by one are not supported", [], {}),
)  # fmt: skip

# Where each table is found, for docs/model_files.md.
FILES = {
    "ADAPTER": "`adapter_config.json`",
}
