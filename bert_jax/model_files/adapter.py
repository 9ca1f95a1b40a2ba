"""Keys of peft's adapter_config.json: LoRA (Hu et al. 2021, arXiv:2106.09685) is merged, other adapters are refused."""

from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

ADAPTER: tuple[FileKey, ...] = (
    refused("peft_type", "only LoRA adapters are supported", "LORA"),
    honoured("base_model_name_or_path", "path or hub name of the base model"),
    honoured("task_type", "the task, which determines the head"),
    honoured("auto_mapping", "class of the base model, which determines the head"),
    honoured("r", "rank of the update"),
    honoured("lora_alpha", "the update is scaled by lora_alpha / r"),
    honoured("use_rslora", "the update is scaled by lora_alpha / sqrt(r) instead (Kalajdzievski 2023, "
             "arXiv:2312.03732)"),
    honoured("rank_pattern", "ranks of some layers"),
    honoured("alpha_pattern", "lora_alpha of some layers"),
    honoured("fan_in_fan_out", "whether weights are stored transposed; those of these families are not"),
    honoured("bias", "which biases were trained; those in the file replace the base model's"),
    honoured("modules_to_save", "layers that the file contains in full"),
    *(harmless(name, "layers with an update; the tensors in the file show them") for name in (
        "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "target_parameters")),
    *(harmless(name, "setting of training, or version") for name in (
        "lora_dropout", "inference_mode", "peft_version", "corda_config", "eva_config", "lora_ga_config",
        "loftq_config", "runtime_config", "megatron_config", "megatron_core", "ensure_weight_tying")),
    harmless("qalora_group_size", "used only with use_qalora"),
    refused("init_lora_weights", "other initialisations change the base model's weights", True, False, "gaussian",
            "orthogonal", "eva"),
    refused("use_dora", "DoRA is not supported", False),
    refused("use_qalora", "QALoRA is not supported", False),
    refused("use_bdlora", "block-diagonal LoRA is not supported", False, {}),
    refused("alora_invocation_tokens", "activated LoRA is not supported", []),
    refused("arrow_config", "a mixture of adapters is not supported", {}),
    refused("lora_bias", "a bias in the update is not supported", False),
    refused("kasa_config", "KaSA is not supported", {}),
    refused("monteclora_config", "MonteCLoRA is not supported", {}),
    refused("velora_config", "VeLoRA is not supported", {}),
    refused("layer_replication", "repeated layers are not supported", []),
    refused("trainable_token_indices", "updates of single tokens are not supported", [], {}),
)  # fmt: skip

# Titles of the tables in docs/model_files.md.
FILES = {
    "ADAPTER": "`adapter_config.json`",
}
