"""Map tokenizer classes and model types of transformers to algorithms."""

import re
from collections.abc import Iterable

from bert_jax.errors import InputError

WORD_PIECE, MPNET, BYTE_LEVEL_BPE, FAST_BPE = "WordPiece", "MPNet's WordPiece", "byte-level BPE", "fastBPE"
XLM_ROBERTA, CAMEMBERT, ALBERT = "XLM-R's unigrams", "CamemBERT's unigrams", "ALBERT's unigrams"
DEBERTA, DEBERTA_BPE, BIG_BIRD = "DeBERTa-v2's unigrams", "DeBERTa's byte-level BPE", "BigBird's unigrams"
RESIDUES, RJIEBA = "one token per residue", "rjieba's words"

# Algorithm -> lower-case names of tokenizer classes and model types, without "Tokenizer", "Fast", "-" and "_".
_CLASSES = {
    WORD_PIECE: """bert distilbert electra mobilebert convbert squeezebert layoutlm lxmert retribert realm nezha
        ernie bros megatronbert nomicbert neobert visualbert vilt dprcontextencoder dprquestionencoder dprreader dpr
        chineseclip""",
    MPNET: "mpnet",
    BYTE_LEVEL_BPE: """roberta robertaprelayernorm longformer led bart data2vectext ibert lilt mega mra bridgetower""",
    XLM_ROBERTA: "xlmroberta xlmrobertaxl xmod gte jinaembeddingsv3 trocr",
    CAMEMBERT: "camembert",
    ALBERT: "albert",
    FAST_BPE: "bertweet phobert",
    DEBERTA: "debertav2",
    RESIDUES: "esm",
    RJIEBA: "roformer",
    DEBERTA_BPE: "deberta",
    BIG_BIRD: "bigbird",
}
_ALGORITHMS = {name: algorithm for algorithm, names in _CLASSES.items() for name in names.split()}
# Names that do not determine the algorithm; the files do.
_GENERIC = ("", "pretrained", "tokenizersbackend", "pythonbackend", "modernbert", "eurobert")
# Tokenizers that transformers implements in Python, ignoring any tokenizer.json.
_PYTHON_ONLY = """bartpho bertgeneration bertjapanese biogpt byt5 canine cpmant ctrl flaubert fsmt gptsw3
    luke m2m100 marian mluke myt5 perceiver plbart prophetnet rocbert siglip speech2text tapas tapex transfoxl
    vits xlm xlmprophetnet"""

# Model type of a tokenizer.json -> names of the classes that fit it.
_MODELS = {
    "WordPiece": f"{_CLASSES[WORD_PIECE]} mpnet funnel layoutlmv2 splinter",
    "BPE": f"{_CLASSES[BYTE_LEVEL_BPE]} herbert gpt2 deberta blenderbot clip codegen gptneox",
    "Unigram": f"{_CLASSES[XLM_ROBERTA]} {_CLASSES[DEBERTA]} camembert t5 albert bigbird xlnet rembert fnet mbart "
    "barthez pegasus",
}


def short_name(name: str) -> str:
    """Normalise a class name or model type: `"XLMRobertaTokenizerFast"` and `"xlm-roberta"` -> `"xlmroberta"`."""
    return re.sub(r"tokenizer(fast)?$|[-_]", "", name.lower())


def algorithm_of(names: Iterable[str], has_tokenizer_json: bool) -> str | None:
    """Return the algorithm of the first name that is not generic; None if it is unknown or all are generic.

    Args:
        names: tokenizer classes or model types, the most specific first.
        has_tokenizer_json: whether a tokenizer.json describes the algorithm.

    Raises:
        InputError: the algorithm is not supported, and no tokenizer.json describes it.
    """
    for name in names:
        short = short_name(name)
        if short in _GENERIC:
            continue
        if short in _ALGORITHMS:
            return _ALGORITHMS[short]
        if short in _PYTHON_ONLY.split() or not has_tokenizer_json:
            known = ", ".join(sorted(set(_ALGORITHMS.values())))
            hint = "" if short in _PYTHON_ONLY.split() else ", or a tokenizer.json that describes it"
            raise InputError(f"tokenizer_class: expected a class with a supported algorithm ({known}){hint}, "
                             f"found {name!r}")  # fmt: skip
        return None
    return None


def fits_model(name: str, model: str) -> bool:
    """Return whether the model type of a tokenizer.json can be that of the tokenizer class `name`."""
    models_of_class = [kind for kind, names in _MODELS.items() if short_name(name) in names.split()]
    return not models_of_class or model in models_of_class or model not in (*_MODELS, "WordLevel")
