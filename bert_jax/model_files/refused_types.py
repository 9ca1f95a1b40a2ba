"""Encoders of transformers that are refused, and what each does that no family here does."""

from collections.abc import Iterable

from bert_jax.errors import did_you_mean

# model_type -> the reason, about "it".
REFUSED_TYPES = {
    "bert-generation": "its embeddings have no token types and its masked-LM head no transform, as in a decoder",
    "canine": "it reads characters by hashes, and has no vocabulary",
    "convbert": "half of its attention heads are convolutions whose kernels depend on the tokens",
    "flaubert": "its layers are those of XLM, in either order of LayerNorm",
    "fnet": "it mixes tokens by a Fourier transform of the whole row, padding included, and has no attention",
    "funnel": "its blocks pool a row to half its length",
    "ibert": "its layers are made to compute in integers",
    "layoutlm": "its embeddings need the place of each word on a page",
    "lilt": "it has a second stream of layers, for the place of each word on a page",
    "luke": "it reads entities of a vocabulary of their own beside the tokens",
    "mra": "its attention is approximated at several resolutions",
    "nystromformer": "its attention is approximated by landmarks, which are means of the whole row, padding included",
    "reformer": "its attention is among tokens of the same hash, and its layers are reversible",
    "rembert": "the embeddings of its masked-LM head have another width than those of its input",
    "roc_bert": "it adds embeddings of the sound and the shape of each character",
    "splinter": "its answers are selected by question tokens in the passage, which no head here does",
    "squeezebert": "its projections are grouped convolutions",
    "t5gemma": "its encoder is described beside a decoder, and its attention scores are capped",
    "tapas": "its embeddings need the row and the column of each cell of a table",
    "xlm": "it adds embeddings of languages, which a row must state",
    "xlnet": "its positions are those of Transformer-XL, and it is trained with a second stream of attention",
    "xmod": "each layer has an adapter for each language, and a row says which one it uses",
    "yoso": "its attention is estimated by hashes",
}


def why_refused(model_type: str, known: Iterable[str]) -> str:
    """Return the end of a message that a model_type is not supported: the reason, or the nearest of the known names."""
    reason = REFUSED_TYPES.get(model_type)
    return f": {reason}" if reason else did_you_mean(model_type, known)
