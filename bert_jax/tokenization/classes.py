"""Map tokenizer classes and model types of transformers to algorithms."""

import re
from collections.abc import Iterable

from bert_jax.errors import InputError, printable

WORD_PIECE, MPNET, BYTE_LEVEL_BPE, XLM_ROBERTA = "WordPiece", "MPNet's WordPiece", "byte-level BPE", "XLM-R's unigrams"

# Names without "Tokenizer", "Fast", "-" and "_", in lower case: of classes, and of model types for where no class is
# named. Those of one algorithm differ in their models only.
_CLASSES = {
    WORD_PIECE: """bert distilbert electra mobilebert convbert squeezebert layoutlm lxmert retribert realm nezha ernie
        bros megatronbert nomicbert visualbert vilt dprcontextencoder dprquestionencoder dprreader dpr chineseclip""",
    MPNET: "mpnet",
    BYTE_LEVEL_BPE: """roberta robertaprelayernorm longformer led bart data2vectext ibert lilt mega mra bridgetower""",
    XLM_ROBERTA: "xlmroberta xmod gte jinaembeddingsv3 trocr",
}
_ALGORITHMS = {name: algorithm for algorithm, names in _CLASSES.items() for name in names.split()}
# These say nothing about the algorithm: the files do.
_GENERIC = ("", "pretrained", "tokenizersbackend", "pythonbackend", "modernbert")
# Run by Python code of transformers, which does not read a tokenizer.json even where there is one.
_PYTHON_ONLY = """bartpho bertgeneration bertjapanese bertweet biogpt byt5 canine cpmant ctrl esm flaubert fsmt gptsw3
    luke m2m100 marian mluke myt5 perceiver phobert plbart prophetnet rocbert siglip speech2text tapas tapex transfoxl
    vits xlm xlmprophetnet"""

# The model of a tokenizer.json that fits a class.
_MODELS = {
    "WordPiece": f"{_CLASSES[WORD_PIECE]} mpnet funnel layoutlmv2 splinter",
    "BPE": f"{_CLASSES[BYTE_LEVEL_BPE]} herbert gpt2 deberta blenderbot clip codegen gptneox",
    "Unigram": f"{_CLASSES[XLM_ROBERTA]} camembert t5 albert debertav2 xlnet rembert fnet mbart barthez pegasus",
}


def short_name(name: str) -> str:
    """`"XLMRobertaTokenizerFast"` or `"xlm-roberta"` -> `"xlmroberta"`."""
    return re.sub(r"tokenizer(fast)?$|[-_]", "", name.lower())


def algorithm_of(names: Iterable[str], has_tokenizer_json: bool) -> str | None:
    """Return the algorithm that the first name with a meaning names; None where no name has one.

    Args:
        names: a tokenizer_class or a model_type each, the more specific before others.
        has_tokenizer_json: whether a tokenizer.json describes the algorithm whatever its name.

    Raises:
        InputError: the algorithm is not here, and no tokenizer.json describes it.
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
            raise InputError(f"tokenizer_class: expected one with an algorithm that is known here ({known}){hint}, "
                             f"found {name!r}")  # fmt: skip
        return None
    return None


def check_model(name: str, model: str) -> None:
    """Check the model of a tokenizer.json against the class that is to open it.

    Raises:
        InputError: the class has another model, so that one of them is not what the model was trained with.
    """
    fits = [kind for kind, names in _MODELS.items() if short_name(name) in names.split()]
    if fits and model in (*_MODELS, "WordLevel") and model not in fits:
        raise InputError(f"expected a model of type {fits[0]}, that of {name}, found {printable(repr(model), 60)}")
