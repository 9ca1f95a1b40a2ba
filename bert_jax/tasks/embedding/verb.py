"""The verb `embed`: texts as vectors."""

import argparse
import itertools
from typing import Any

from bert_jax.cli.over_texts import add_text_flags, answers_of, open_pipeline, run_over_texts
from bert_jax.cli.ranking import prompt_options
from bert_jax.cli.signatures import ParameterFlags
from bert_jax.cli.verbs import Verbs, add_kind, add_prompts, add_vector_sizes, add_verb, check_counts
from bert_jax.errors import InputError
from bert_jax.tasks.embedding import vector_files

CHUNKING = ParameterFlags(
    "bert_jax.tasks.embedding.dense.chunking.Chunking",
    "chunk_tokens", "chunk_boundary", "late_chunking", "window_overlap", unset=True,
)  # fmt: skip


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    embed = add_verb(
        verbs,
        "embed",
        run_embed,
        "embed texts as vectors",
        "Prints one vector per text and, for at most ten texts, the similarity of every pair. For a model of sparse "
        "embeddings (SPLADE), prints the tokens with the greatest weights; for late interaction (ColBERT), the vector "
        "of each token.",
        """bert-jax embed all-MiniLM-L6-v2/ "a cat on a mat" "a kitten on a rug" "tax law"
           bert-jax embed all-MiniLM-L6-v2/ --file sentences.txt --out vectors.npy
           bert-jax embed all-MiniLM-L6-v2/ --file sentences.txt --precision int8 --out bytes.npy
           bert-jax embed splade/ --file sentences.txt --task document --max-active-dims 256 --out weights.npz""",
    )
    add_prompts(embed)
    embed.add_argument("--task", choices=("query", "document"),
        help="embed the texts as queries or as documents, with the model's prompt for them")  # fmt: skip
    add_vector_sizes(embed)
    add_kind(embed)
    embed.add_argument("--out", metavar="FILE",
        help="write vectors instead of printing them: a .npy of float32 [texts, dimensions]; for sparse embeddings a "
        ".npz, which scipy.sparse.load_npz reads; for a vector for each token a .npz of vectors and starts; or "
        ".parquet; with --shards the directory of such files")  # fmt: skip
    embed.add_argument("--format", choices=("parquet",),
        help="with --shards: format of the files (default: arrays of NumPy)")  # fmt: skip
    embed.add_argument("--precision", choices=("float32", "int8", "uint8", "binary", "ubinary"), default="float32",
        help="write sentence embeddings as bytes, or as bits, eight in a byte, with the values of quantize_embeddings "
        "of sentence-transformers (default: float32)")  # fmt: skip
    vector_files.add_calibration_vectors(embed)
    CHUNKING.declare(embed)
    add_text_flags(embed)


def run_embed(args: argparse.Namespace) -> int:
    """Print or write the vector of each text."""
    check_counts(args, "chunk_tokens")
    if args.precision != "float32" and CHUNKING.flags_set(args):
        raise InputError(f"--precision: expected float32 for chunks, found {args.precision}")

    def suffix() -> str:
        if CHUNKING.flags_set(args):
            return ".npz"
        return ".npy" if open_pipeline(args, _pipeline(args)).head == "sentence_embedding" else ".npz"

    return run_over_texts(args, _embed, None, suffix)


def _embed(args: argparse.Namespace) -> None:
    if CHUNKING.flags_set(args):
        _embed_chunks(args)
        return
    options = prompt_options(args, "task", "truncate_dim", "max_active_dims")

    def embed(pipe: Any, texts: list[str]) -> Any:
        vectors = pipe(texts, **options)
        return (vectors[i : i + 1] for i in range(len(texts))) if pipe.head == "sparse_embedding" else vectors

    answers = answers_of(args, _pipeline(args), embed)
    first = list(itertools.islice(answers, 1))  # the first answer opens the model
    answers, head = itertools.chain(first, answers), args.pipe.head
    if head != "sentence_embedding" and (args.precision != "float32" or args.calibration is not None):
        raise InputError(f"--precision: expected a model of sentence embeddings, found {head.replace('_', ' ')}")
    if args.calibration is not None and not args.precision.endswith("int8"):
        raise InputError(f"--calibration: expected --precision int8 or uint8 with it, found {args.precision}")
    if head == "sparse_embedding":
        vector_files.show_sparse(args, answers, args.pipe.decode, args.pipe.model.config.vocab_size)
    elif head == "multi_vector":
        vector_files.show_multi_vector(args, answers)
    else:
        settings, size = args.pipe.model.settings, args.pipe.model.config.sentence_embedding_size
        dimensions = settings.dimension(args.truncate_dim)
        vector_files.show_dense(args, answers, settings.similarity, min(size, dimensions or size))


def _embed_chunks(args: argparse.Namespace) -> None:
    """Print or write the vectors of the chunks of each text."""
    from bert_jax.tasks.embedding.dense.chunking import Chunking, embed_chunks

    chunking = Chunking(**CHUNKING.values(args))

    def embed(pipe: Any, texts: list[str]) -> Any:
        if pipe.head != "sentence_embedding":
            raise InputError(f"--chunk-tokens: expected a model of sentence embeddings, found {pipe.head}")
        settings = pipe.model.settings
        prompt = settings.prompt_of_task(args.task, args.prompt_name, args.prompt)
        vectors, counts, spans = embed_chunks(pipe, texts, prompt, chunking)
        starts = counts.cumsum() - counts
        size = settings.dimension(args.truncate_dim)
        return [(vectors[start : start + count, :size], spans[start : start + count])
                for start, count in zip(starts, counts, strict=True)]  # fmt: skip

    vector_files.show_chunks(args, answers_of(args, _pipeline(args), embed))


def _pipeline(args: argparse.Namespace) -> str:
    return f"{args.kind or 'sentence'}-embedding"
