"""The verb `embed`: texts as vectors."""

import argparse
import itertools
from typing import Any

from bert_jax.cli.over_texts import add_text_flags, answers_of, open_pipeline, run_over_texts
from bert_jax.cli.ranking import prompt_options
from bert_jax.cli.verbs import Verbs, add_kind, add_prompts, add_vector_sizes, add_verb
from bert_jax.tasks.embedding import vector_files


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
    add_text_flags(embed)


def run_embed(args: argparse.Namespace) -> int:
    """Print or write the vector of each text."""

    def suffix() -> str:
        return ".npy" if open_pipeline(args, _pipeline(args)).head == "sentence_embedding" else ".npz"

    return run_over_texts(args, _embed, None, suffix)


def _embed(args: argparse.Namespace) -> None:
    options = prompt_options(args, "task", "truncate_dim", "max_active_dims")

    def embed(pipe: Any, texts: list[str]) -> Any:
        vectors = pipe(texts, **options)
        return (vectors[i : i + 1] for i in range(len(texts))) if pipe.head == "sparse_embedding" else vectors

    answers = answers_of(args, _pipeline(args), embed)
    first = list(itertools.islice(answers, 1))  # the first answer opens the model
    answers, head = itertools.chain(first, answers), args.pipe.head
    if head == "sparse_embedding":
        vector_files.show_sparse(args, answers, args.pipe.decode, args.pipe.model.config.vocab_size)
    elif head == "multi_vector":
        vector_files.show_multi_vector(args, answers)
    else:
        settings, size = args.pipe.model.settings, args.pipe.model.config.sentence_embedding_size
        dimensions = settings.dimension(args.truncate_dim)
        vector_files.show_dense(args, answers, settings.similarity, min(size, dimensions or size))


def _pipeline(args: argparse.Namespace) -> str:
    return f"{args.kind or 'sentence'}-embedding"
