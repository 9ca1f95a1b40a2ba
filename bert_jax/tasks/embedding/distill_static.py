"""The verb `distill-static`: write static embeddings that are distilled from an encoder."""

import argparse

from bert_jax.cli.output import say
from bert_jax.cli.verbs import Verbs, add_dtype, add_verb

_REMOVED = r"\[unused\d+\]"


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb `distill-static`."""
    parser = add_verb(
        verbs,
        "distill-static",
        run_distill_static,
        "distil static embeddings, which need no encoder, from a model",
        "Embeds each token of the vocabulary alone, reduces the vectors by a principal component analysis, and weights "
        "them by the rank of the token, as model2vec does. The vector of a text is then the mean of those of its "
        "tokens. Needs no texts. `finetune` trains the result further.",
        """bert-jax distill-static path/to/all-MiniLM-L6-v2 --out static_minilm
           bert-jax distill-static path/to/bert --out static_bert --dims 512 --sif 0""",
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="a model directory, whose encoder is used")
    add("--out", required=True, metavar="DIR", help="a new directory for the static embeddings")
    add("--dims", type=int, default=256, metavar="N",
        help="dimensions of the vectors; 0 = those of the encoder, without a principal component analysis "
        "(default: %(default)s)")  # fmt: skip
    add("--sif", type=float, default=1e-4, metavar="A",
        help="coefficient of the weights a / (a + p), where p is the frequency of a token by Zipf's law; 0 = no "
        "weights (default: %(default)s)")  # fmt: skip
    add("--remove", default=_REMOVED, metavar="REGEX",
        help="leave tokens that match from their beginning out of the vocabulary; '' = none "
        "(default: %(default)s)")  # fmt: skip
    add_dtype(parser)


def run_distill_static(args: argparse.Namespace) -> None:
    """Write the directory, and print the number of its vectors."""
    from bert_jax import storage
    from bert_jax.tasks.embedding.dense.static_distillation import StaticDistillation, distill_static

    storage.new_directory(args.out)
    model = distill_static(args.model, StaticDistillation(args.dims, args.sif, args.remove, args.dtype))
    model.save_pretrained(args.out)
    say(f"{args.out}: {model.config.vocab_size:,} vectors of {model.config.hidden_size} dimensions")
