"""The verbs `train-tokenizer` and `prepare`: train a vocabulary, and turn a corpus into pretraining data."""

import argparse
import shlex

from bert_jax.cli.output import say
from bert_jax.cli.signatures import ParameterFlags
from bert_jax.cli.verbs import Verbs, add_verb
from bert_jax.errors import InputError

CORPUS_HELP = (
    "text files, directories or globs (documents end at a blank line or at the end of a file); files:PATH (each file "
    "is a document); sentences:FILE (one sentence per line, a blank line between documents); wikitext:FILE (a document "
    "begins with ' = Title = '); FILE.jsonl[:FIELD]; FILE.parquet[:COLUMN]; tfds:NAME[:SPLIT[:FIELD]]; "
    "datasets:FOLDER[:COLUMN], as `save_to_disk` writes it (each row is a document; default field: text); web "
    "archives, FILE.warc.gz and FILE.wet.gz (each page is a document); python-docs (the docstrings and help topics of "
    "this Python installation)"
)
_PREPARE = ParameterFlags(
    "bert_jax.data.pretraining.prepare.prepare",
    "objective", "dupe_factor", "short_seq_prob", "validation_fraction", "seed", "num_workers", "similarity",
    pack="packed",
)  # fmt: skip


def add_verbs(verbs: Verbs) -> None:
    """Declare the verbs of this module."""
    train = add_verb(
        verbs,
        "train-tokenizer",
        run_train_tokenizer,
        "train a vocabulary on a corpus",
        "Writes a tokenizer directory that `bert-jax prepare` and Hugging Face transformers can read.",
        """bert-jax train-tokenizer books/ --vocab-size 30522 --out tokenizer/
           bert-jax train-tokenizer python-docs --vocab-size 4000 --kind sentencepiece --out tokenizer/""",
    )
    train.add_argument("corpus", metavar="CORPUS", nargs="+", help=CORPUS_HELP)
    train.add_argument("--out", required=True, metavar="DIR", help="new directory for the tokenizer")
    train.add_argument("--vocab-size", type=int, default=30522, metavar="N",
                       help="number of tokens in the vocabulary (default: %(default)s)")  # fmt: skip
    train.add_argument("--kind", choices=tuple(_TRAINERS), default="wordpiece",
                       help="wordpiece as in BERT (default), sentencepiece, or byte-level bpe as in "
"RoBERTa")  # fmt: skip
    train.add_argument("--sample", type=float, default=1.0, metavar="F",
                       help="read only this fraction of the corpus, in random parts of a megabyte "
                            "(default: all of it)")  # fmt: skip
    train.add_argument("--cased", action="store_true", help="keep upper case and accents; bpe always keeps them")

    _add_prepare(verbs)


def _add_prepare(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare",
        run_prepare,
        "turn a corpus into pretraining data",
        "Writes shards of unmasked examples and a copy of the tokenizer. Memory does not grow with the corpus, and the "
        "result does not depend on the number of workers. Run the same command again to resume a killed one.",
        """bert-jax prepare books/ --tokenizer tokenizer/ --out prepared/
           bert-jax prepare articles.jsonl:text --tokenizer vocab.txt --out prepared/ --max-seq-length 128,512""",
    )
    add = parser.add_argument
    add("corpus", metavar="CORPUS", nargs="+", help=CORPUS_HELP)
    add("--tokenizer", required=True, metavar="PATH",
        help="vocab.txt, vocab.json, tokenizer.json, *.model, or a directory with one of these")  # fmt: skip
    add("--out", required=True, metavar="DIR", help="new directory for the shards")
    add("--max-seq-length", type=_lengths, default=(128,), metavar="N[,N]",
        help="maximum number of tokens in an example (default: 128); a set of shards is written for each "
             "length")  # fmt: skip
    add("--invalid", choices=("strict", "skip"), default="strict",
        help="what to do with rows and files that cannot be read: stop with the first error (strict, the default), or "
        "leave them out, count them, and list them in skipped.txt (skip)")  # fmt: skip
    add("--language", default="", metavar="CODE[,CODE]",
        help="leave out documents in other languages than these, as en,de; needs the extra `languages`")  # fmt: skip
    add("--filter", action="append", default=[], metavar="FILE.py:FUNCTION", dest="filters",
        help="leave out documents for which this Python function (or MODULE:FUNCTION) returns False; it gets the text, "
        "one line per paragraph, and may return a changed text; may be repeated")  # fmt: skip
    add("--beam", metavar="OPTIONS",
        help="prepare on Apache Beam, with these options in one text: --beam='--runner=DataflowRunner --project=P'; "
        "needs the extra `beam`")  # fmt: skip
    add("--deduplicate", nargs="?", const="exact", default="", choices=("exact", "near"),
        help="leave out documents that repeat an earlier one, and with `near` those that share most of its text; "
        "removed.jsonl in --out lists them")  # fmt: skip
    _PREPARE.declare(parser)


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


_lengths.__name__ = "length"  # argparse shows this name in its error

# Value of --kind -> the function of bert_jax.tokenization that trains it.
_TRAINERS = {"wordpiece": "train_wordpiece", "sentencepiece": "train_sentencepiece", "bpe": "train_bpe"}


def run_train_tokenizer(args: argparse.Namespace) -> None:
    """Train a vocabulary and write its directory."""
    from bert_jax import storage, tokenization
    from bert_jax.data.corpora.sources import open_corpus

    corpus = open_corpus(args.corpus)
    if args.sample != 1:
        corpus = corpus.sample(args.sample)
    with storage.directory_atomically(args.out) as directory:
        case = {} if args.kind == "bpe" else {"lowercase": not args.cased}
        tokenizer = getattr(tokenization, _TRAINERS[args.kind])(corpus.texts(), args.vocab_size, **case)
        tokenizer.save(directory)
    say(f"{args.out}: vocabulary of {tokenizer.vocab_size:,} tokens")
    if tokenizer.vocab_size < args.vocab_size:
        say(f"the corpus is too small for the {args.vocab_size:,} tokens of --vocab-size")


def run_prepare(args: argparse.Namespace) -> None:
    """Prepare a corpus and write the directory of shards."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from bert_jax.data.pretraining.filters import LANGUAGE
    from bert_jax.data.pretraining.prepare import PrepareProgress, prepare
    from bert_jax.tokenization import load_tokenizer

    if args.num_workers is not None and args.num_workers < 1:
        raise InputError(f"--num-workers: expected a positive integer, found {args.num_workers}")
    if args.beam is not None and args.num_workers is not None:
        raise InputError(f"--num-workers: expected none with --beam, whose options set it, found {args.num_workers}")
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
            max_seq_length=args.max_seq_length,
            deduplicate=args.deduplicate,
            invalid=args.invalid,
            languages=tuple(args.language.split(",")) if args.language else (),
            filters=args.filters,
            beam_options=None if args.beam is None else shlex.split(args.beam),
            on_progress=show,
            **_PREPARE.values(args),
        )
    if args.deduplicate:
        say(f"{args.out}: {manifest.removed:,} documents that repeat an earlier one left out (removed.jsonl)")
    for name, count in manifest.filtered.items():
        say(f"{args.out}: {count:,} documents left out by {'their ' * (name == LANGUAGE)}{name}")
    if manifest.skipped:
        say(f"{args.out}: {manifest.skipped:,} rows and files that cannot be read left out (skipped.txt)")
    for part in manifest.sets:
        documents = manifest.documents[part.split]
        say(f"{args.out}: {part.split}: {part.examples:,} examples of up to {part.max_seq_length} tokens, "
            f"{part.tokens:,} tokens, from {documents:,} documents, in {part.rows:,} rows, "
            f"{part.tokens / part.rows / part.max_seq_length:.1%} full")  # fmt: skip
