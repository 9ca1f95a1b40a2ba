"""The verbs `train-tokenizer` and `prepare`: learn a vocabulary, and turn a corpus into pretraining data."""

import argparse
from typing import Any

from bert_jax.cli.output import say
from bert_jax.cli.verbs import add_verb
from bert_jax.errors import InputError

CORPUS_HELP = (
    "text files, folders or globs (a blank line or a file's end ends a document); files:PATH (each file is a "
    "document); sentences:FILE (a sentence a line, a blank line between documents); wikitext:FILE (a document begins "
    "with ' = Title = '); FILE.jsonl[:FIELD]; FILE.parquet[:COLUMN]; "
    "tfds:NAME[:SPLIT[:FIELD]]; python-docs, the documentation inside this Python"
)


def add_verbs(verbs: Any) -> None:
    """Declares the verbs of this group."""
    train = add_verb(
        verbs,
        "train-tokenizer",
        run_train_tokenizer,
        "train a vocabulary on a corpus",
        "Writes a directory that `bert-jax prepare` and Hugging Face's tokenizers read.",
        """bert-jax train-tokenizer books/ --vocab-size 30522 --out tokenizer/
           bert-jax train-tokenizer python-docs --vocab-size 4000 --kind sentencepiece --out tokenizer/""",
    )
    train.add_argument("corpus", metavar="CORPUS", nargs="+", help=CORPUS_HELP)
    train.add_argument("--out", required=True, metavar="DIR", help="a new directory for the tokenizer")
    train.add_argument("--vocab-size", type=int, default=30522, metavar="N", help="pieces (default: %(default)s)")
    train.add_argument("--kind", choices=tuple(_TRAINERS), default="wordpiece",
                       help="BERT's (the default), sentencepiece, or bpe over bytes, RoBERTa's")  # fmt: skip
    train.add_argument("--cased", action="store_true", help="keep capitals and accents apart, as bpe always does")

    _add_prepare(verbs)


def _add_prepare(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "prepare",
        run_prepare,
        "turn a corpus into examples for pretraining",
        "Writes shards of examples, not yet masked, with a copy of the tokenizer. Memory does not grow with the "
        "corpus, and the result does not depend on the number of workers. The same command resumes a killed one.",
        """bert-jax prepare books/ --tokenizer tokenizer/ --out prepared/
           bert-jax prepare articles.jsonl:text --tokenizer vocab.txt --out prepared/ --max-seq-length 128,512""",
    )
    add = parser.add_argument
    add("corpus", metavar="CORPUS", nargs="+", help=CORPUS_HELP)
    add("--tokenizer", required=True, metavar="PATH",
        help="vocab.txt, vocab.json, tokenizer.json, *.model or their folder")  # fmt: skip
    add("--out", required=True, metavar="DIR", help="a new directory for the shards")
    add("--objective", default="nsp", metavar="nsp|sop|mlm",
        help="besides masked words: the next sentence as in BERT (nsp, the default), the order of sentences as in "
        "ALBERT (sop), or nothing, with whole sentences filling each example as in RoBERTa (mlm)")  # fmt: skip
    add("--pack", action="store_true", help="let short examples share rows, kept apart by the model")
    add("--max-seq-length", type=_lengths, default=(128,), metavar="N[,N]", help="tokens of an example (default: 128)")
    add("--dupe-factor", type=int, default=5, metavar="N", help="times that text is cut, differently (default: 5)")
    add("--short-seq-prob", type=float, default=0.1, metavar="P", help="share of shorter examples (default: 0.1)")
    add("--validation-fraction", type=float, default=0.01, metavar="F", help="documents held out (default: 0.01)")
    add("--seed", type=int, default=0, metavar="N", help="draws everything (default: 0)")
    add("--num-workers", type=int, metavar="N", help="processes (default: one a core)")


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


_lengths.__name__ = "length"  # argparse names it in its complaint

# The function of bert_jax.tokenization behind each --kind.
_TRAINERS = {"wordpiece": "train_wordpiece", "sentencepiece": "train_sentencepiece", "bpe": "train_bpe"}


def run_train_tokenizer(args: argparse.Namespace) -> None:
    """Trains a vocabulary and writes its directory."""
    from bert_jax import storage, tokenization
    from bert_jax.data.corpora.sources import open_corpus

    corpus = open_corpus(args.corpus)
    with storage.directory_atomically(args.out) as directory:
        case = {} if args.kind == "bpe" else {"lowercase": not args.cased}
        tokenizer = getattr(tokenization, _TRAINERS[args.kind])(corpus.texts(), args.vocab_size, **case)
        tokenizer.save(directory)
    say(f"{args.out}: {tokenizer.vocab_size:,} pieces")
    if tokenizer.vocab_size < args.vocab_size:
        say(f"the texts give no more of the {args.vocab_size:,} pieces of --vocab-size")


def run_prepare(args: argparse.Namespace) -> None:
    """Writes the prepared directory of a corpus."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from bert_jax.data.pretraining.prepare import PrepareProgress, prepare
    from bert_jax.tokenization import load_tokenizer

    if args.num_workers is not None and args.num_workers < 1:
        raise InputError(f"--num-workers: expected a positive integer, found {args.num_workers}")
    tokenizer = load_tokenizer(args.tokenizer)
    columns = (BarColumn(30), TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, speed_estimate_period=600, disable=hidden) as bar:
        task = bar.add_task("reading", total=None)

        def show(done: PrepareProgress) -> None:
            bar.update(
                task,
                total=None if done.share is None else 1.0,
                completed=done.share,
                description=f"{done.documents:,} documents, {done.characters / 1e6:,.1f} M characters, "
                f"{done.instances:,} examples",
            )

        manifest = prepare(
            args.corpus,
            tokenizer,
            args.out,
            objective=args.objective,
            packed=args.pack,
            max_seq_length=args.max_seq_length,
            dupe_factor=args.dupe_factor,
            short_seq_prob=args.short_seq_prob,
            validation_fraction=args.validation_fraction,
            seed=args.seed,
            num_workers=args.num_workers,
            on_progress=show,
        )
    for part in manifest.sets:
        documents = manifest.documents[part.split]
        say(f"{args.out}: {part.split}: {part.examples:,} examples of up to {part.max_seq_length} tokens, "
            f"{part.tokens:,} tokens, from {documents:,} documents, in {part.rows:,} rows, "
            f"{part.tokens / part.rows / part.max_seq_length:.1%} full")  # fmt: skip
