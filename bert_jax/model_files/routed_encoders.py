"""Keys of the files of a SpladePooling and a Router of sentence-transformers, and of modules that look up tokens."""

from bert_jax.model_files.keys import harmless, honoured

SPLADE_POOLING = (
    honoured("pooling_strategy", "max (default) or sum"),
    honoured("activation_function", "relu (default) or log1p_relu"),
    harmless("embedding_dimension", "always the size of the vocabulary"),
    harmless("word_embedding_dimension", "older name of embedding_dimension"),
    harmless("chunk_size", "affects only memory"),
)
ROUTER = (
    honoured("types", "the class of each module, by its directory"),
    honoured("structure", "the modules of each route, in order; queries and documents must have one"),
    honoured("parameters", "see the table of `parameters`"),
)
ROUTER_PARAMETERS = (
    honoured("default_route", "the route of texts that are neither queries nor documents"),
    honoured("allow_empty_key", "whether the first route is the default_route of a file without one"),
    honoured("route_mappings", "the routes of queries, documents and other texts, by pairs of task and modality"),
)
SPARSE_STATIC_EMBEDDING = (
    honoured("frozen", "whether training leaves the weights as they are"),
    honoured("path", "a JSON file that maps tokens to weights, in the directory of the module or of the model"),
)
# config.json of a model2vec folder, or of a StaticEmbedding that this package wrote.
STATIC_EMBEDDING = (
    honoured("normalize", "whether vectors have length 1, in a folder without modules.json"),
    harmless("hidden_dim", "width of the vectors, as in the weights"),
    harmless("max_length", "only model2vec itself cuts texts; texts are read whole, as in sentence-transformers"),
    harmless("seq_length", "there is no limit"),
    harmless("tokenizer_name", "the model that was distilled"),
    harmless("apply_pca", "number of dimensions to which the vectors were reduced"),
    harmless("apply_zipf", "whether the vectors were weighted by the rank of their token"),
    harmless("sif_coefficient", "coefficient of the weights by which the vectors were multiplied"),
    harmless("pooling", "how the vectors of the encoder were pooled"),
    harmless("embedding_dtype", "dtype of the weights, as in their file"),
    harmless("vocabulary_quantization", "number of different vectors, as in the weights"),
)
HIERARCHICAL_TOKEN_POOLING = (
    honoured("pool_factor", "number of token vectors that become one; default: 1"),
    honoured("num_protected_tokens", "number of leading token vectors that stay as they are; default: 1"),
    honoured("normalize_embeddings", "whether the vectors are normalized afterwards; default: false"),
    honoured("tasks", "tasks whose texts are pooled; default: document"),
)

# Titles of the tables in docs/model_files.md.
FILES = {
    "SPLADE_POOLING": "`config.json` of a SpladePooling (`1_SpladePooling`)",
    "ROUTER": "`router_config.json` of a Router, or its `config.json` in older versions",
    "ROUTER_PARAMETERS": "`parameters` in `router_config.json`",
    "SPARSE_STATIC_EMBEDDING": "`config.json` of a SparseStaticEmbedding",
    "STATIC_EMBEDDING": "`config.json` of a StaticEmbedding, or of a model2vec model",
    "HIERARCHICAL_TOKEN_POOLING": "`config.json` of a HierarchicalTokenPooling",
}
