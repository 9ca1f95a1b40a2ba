"""Names of files in model directories, and keys of config.json, by which kinds of models are recognised."""

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
GLINER_FILE = "gliner_config.json"
CONFIG_FILES = ("config.json", GLINER_FILE)  # one of these is written last into a model directory
RECORD = "bert_jax.json"  # file of this package beside the weights; transformers ignores it
ACTIVATION_KEYS = ("sentence_transformers", "sbert_ce_default_activation_function")  # of a cross-encoder's activation
