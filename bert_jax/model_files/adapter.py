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
    honoured("fan_in_fan_out", "whether weights are stored transposed, which those of these families are not"),
    honoured("bias", "which biases were trained; those in the file replace the base model's"),
    honoured("modules_to_save", "layers that the file contains in full"),
    harmless("target_modules", "layers with an update; determined by the tensors in the file"),
    harmless("exclude_modules", "layers without an update; determined by the tensors in the file"),
    harmless("layers_to_transform", "layers with an update; determined by the tensors in the file"),
    harmless("layers_pattern", "layers with an update; determined by the tensors in the file"),
    harmless("target_parameters", "layers with an update; determined by the tensors in the file"),
    harmless("lora_dropout", "dropout in training"),
    harmless("inference_mode", "whether the adapter is frozen in peft"),
    harmless("revision", "version of the base model on the hub"),
    harmless("peft_version", "version of peft"),
    harmless("corda_config", "initialisation before training"),
    harmless("eva_config", "initialisation before training"),
    harmless("lora_ga_config", "initialisation before training"),
    harmless("loftq_config", "initialisation before training"),
    harmless("runtime_config", "setting of training"),
    harmless("megatron_config", "setting of training"),
    harmless("megatron_core", "setting of training"),
    harmless("ensure_weight_tying", "setting of training"),
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
