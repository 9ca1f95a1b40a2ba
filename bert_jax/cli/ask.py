"""The verbs `fill-mask`, `classify`, `tag`, `answer`, `embed` and `text2text`: inference over texts."""

import argparse
import copy
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.cli import answer_tables, shards, stream, vectors
from bert_jax.cli.output import complain, print_json, print_table, say
from bert_jax.cli.verbs import add_batching, add_dtype, add_kind, add_prompts, add_vector_sizes, add_verb
from bert_jax.errors import InputError, TextError

TEXTS_AT_ONCE = 4096  # texts that one call of a pipeline takes
MOST_CONTEXT_BYTES = 16 << 20  # limit of --context


def add_verbs(verbs: Any) -> None:
    """Declare the verbs of this module."""
    fill = add_verb(
        verbs,
        "fill-mask",
        run_fill_mask,
        "predict the masked tokens of a text",
        "Each text contains the model's mask token ([MASK] for BERT) once or more.",
        'bert-jax fill-mask runs/base/model "Paris is the [MASK] of France."',
    )
    fill.add_argument("--top-k", type=int, default=5, metavar="K", help="predictions per [MASK] (default: %(default)s)")
    classify = add_verb(
        verbs,
        "classify",
        run_classify,
        "classify texts with a fine-tuned model",
        "For tables with columns, see `bert-jax predict`.",
        """bert-jax classify runs/sst2/model "a gripping, funny film" "two hours lost"
           cat reviews.txt | bert-jax classify runs/sst2/model --json
           bert-jax classify runs/mnli/model "the match ended in a draw" --labels sport,politics""",
    )
    classify.add_argument(
        "--labels",
        metavar="NAME,NAME",
        help="zero-shot: classes to choose from; needs an entailment (NLI) model",
    )
    classify.add_argument("--template", default="This example is {}.", metavar="TEXT",
                          help="zero-shot: hypothesis for each class (default: %(default)s)")  # fmt: skip
    classify.add_argument("--long", choices=("cut", "windows"), dest="long_texts",
        help="what to do with texts over the model's limit: cut them, or average the logits of overlapping windows "
        "(default: an error)")  # fmt: skip
    classify.add_argument("--doc-stride", type=int, default=0, metavar="N",
        help="with --long windows, tokens from one window's start to the next (default: half a window)")  # fmt: skip
    classify.add_argument("--max-seq-length", type=int, default=0, metavar="N",
        help="with --long windows, tokens in a window (default: the model's limit)")  # fmt: skip
    tag = add_verb(
        verbs,
        "tag",
        run_tag,
        "find the entities in texts with a fine-tuned model",
        "Finds whatever the model was trained to tag: entities, parts of speech. For files of tokenized sentences "
        "(CoNLL), see `bert-jax predict`.",
        """bert-jax tag runs/conll2003/model "Angela Merkel met Barack Obama in Berlin."
           bert-jax tag runs/conll2003/model --file articles.txt --json
           bert-jax tag path/to/gliner "Angela Merkel met Barack Obama in Berlin." --labels person,city""",
    )
    tag.add_argument("--strategy", default="first", metavar="NAME",
                     help="how to merge tokens into entities, as the aggregation_strategy of transformers: none, "
                     "simple, first (the default), average or max")  # fmt: skip
    tag.add_argument("--labels", metavar="NAME,NAME",
        help="zero-shot: types of entities to find; needs a GLiNER")  # fmt: skip
    tag.add_argument("--threshold", type=float, default=0.5, metavar="P",
        help="zero-shot: probability above which a span is an entity (default: %(default)s)")  # fmt: skip
    tag.add_argument("--nested", action="store_true", help="zero-shot: allow entities inside others")
    tag.add_argument("--multi-label", action="store_true", help="zero-shot: allow several types for an entity")
    answer = add_verb(
        verbs,
        "answer",
        run_answer,
        "answer questions with spans of a text",
        "The context may have any length. For questions in SQuAD's JSON, see `bert-jax predict`.",
        """bert-jax answer runs/squad/model "Who wrote it?" "When?" --context article.txt
           bert-jax answer runs/squad2/model "Where was she born?" --text "Ada was born in 1815." --impossible""",
    )
    _add_answer_flags(answer)
    embed = add_verb(
        verbs,
        "embed",
        run_embed,
        "embed texts as vectors",
        "Prints one vector per text and, for at most ten texts, the similarity of every pair. Of a model of sparse "
        "embeddings (SPLADE) it prints the tokens with the greatest weights, of one with a vector for each token "
        "(ColBERT) these.",
        """bert-jax embed all-MiniLM-L6-v2/ "a cat on a mat" "a kitten on a rug" "tax law"
           bert-jax embed all-MiniLM-L6-v2/ --file sentences.txt --out vectors.npy
           bert-jax embed splade/ --file sentences.txt --task document --max-active-dims 256 --out weights.npz""",
    )
    add_prompts(embed)
    embed.add_argument("--task", choices=("query", "document"),
        help="embed the texts as queries or as documents, behind the model's prompt for these")  # fmt: skip
    add_vector_sizes(embed)
    add_kind(embed)
    embed.add_argument("--out", metavar="FILE",
        help="write vectors instead of printing them: a .npy of float32 [texts, dimensions]; of a model of sparse "
        "embeddings a .npz, which scipy.sparse.load_npz reads; of a model with a vector for each token a .npz of "
        "vectors and starts; or .parquet; with --shards the directory of such files")  # fmt: skip
    embed.add_argument("--format", choices=("parquet",),
        help="with --shards: format of the files (default: arrays of NumPy)")  # fmt: skip
    text2text = add_verb(
        verbs,
        "text2text",
        run_text2text,
        "write a text for each text with an encoder-decoder: a summary, a translation",
        "The defaults are the settings in the model's generation_config.json.",
        """bert-jax text2text runs/summaries/model "The river rose all night, and in the morning the bridge was gone."
           bert-jax text2text runs/summaries/model --file articles.txt --num-beams 4 --max-length 80 --json
           bert-jax text2text runs/summaries/model "Once upon a time" --sample --temperature 0.8 --seed 1""",
    )
    _add_generation_flags(text2text)
    for parser in (fill, classify, tag, answer, text2text):
        shards.add_answer_files(parser)
    for parser in (fill, classify, tag, embed, text2text):
        add_text_flags(parser)
    add_text_flags(answer, "question")


def add_text_flags(parser: argparse.ArgumentParser, what: str = "text") -> None:
    """Declare the arguments of a verb that runs a pipeline over texts, or over questions."""
    parser.add_argument("model", metavar="MODEL", help="a model directory")
    stream.add_flags(parser, what)
    parser.add_argument("--json", action="store_true", help=f"print one JSON object per {what} instead of tables")
    add_batching(parser, what)
    add_dtype(parser)
    shards.add_shards(parser, f"{what}s, as for --file")
    parser.set_defaults(emit=print_json, pipe=None, counted=0, live=False)


def _add_answer_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--context",
        metavar="FILE",
        help="a UTF-8 file with the text that contains the answers; this or --text is required",
    )
    parser.add_argument("--text", metavar="TEXT", help="the text that contains the answers")
    parser.add_argument("--top-k", type=int, default=1, metavar="K", help="answers per question (default: %(default)s)")
    parser.add_argument(
        "--impossible", action="store_true", help="allow the empty answer, for models trained on SQuAD 2.0"
    )
    parser.add_argument("--max-answer-length", type=int, default=15, metavar="N",
                        help="maximum number of tokens in an answer (default: %(default)s)")  # fmt: skip
    parser.add_argument("--doc-stride", type=int, default=128, metavar="N",
                        help="long texts: tokens from the start of one window to the start of the next "
                        "(default: 128)")  # fmt: skip


def _add_generation_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--num-beams", type=int, metavar="N", help="beams of beam search; 1 = greedy search")
    add("--max-length", type=int, metavar="N", help="most tokens of a text, with its first")
    add("--min-length", type=int, metavar="N", help="fewest tokens of a text")
    add("--length-penalty", type=float, metavar="P", help="beam search: power of the length that divides scores")
    add("--no-repeat-ngram-size", type=int, metavar="N", help="no sequence of N tokens occurs twice; 0 = no limit")
    add("--sample", action="store_true", default=None, help="sample tokens instead of searching for likely texts")
    add("--temperature", type=float, metavar="T", help="sampling: divisor of the logits")
    add("--top-k", type=int, metavar="K", help="sampling: number of most likely tokens to choose from; 0 = all")
    add("--top-p", type=float, metavar="P", help="sampling: probability of the most likely tokens to choose from")
    add("--seed", type=int, default=0, metavar="N", help="sampling: seed (default: %(default)s)")


def run_fill_mask(args: argparse.Namespace) -> int:
    """Print the most likely tokens for each [MASK]."""
    return run_over_texts(args, "fill-mask", _fill_mask)


def _fill_mask(args: argparse.Namespace) -> None:
    for text, blanks in answers_of(args, "fill-mask", lambda pipe, texts: pipe(texts, top_k=args.top_k)):
        blanks = blanks if isinstance(blanks[0], list) else [blanks]
        if args.json:
            args.emit({"text": text, "masks": blanks})
            continue
        for number, answers in enumerate(blanks, 1):
            title = text if len(blanks) == 1 else f"{text}  (blank {number})"
            rows = [(f"{answer['score']:.1%}", answer["token_str"], answer["sequence"]) for answer in answers]
            print_table(title, ("probability", "token", "text"), rows)


def run_classify(args: argparse.Namespace) -> int:
    """Print the classes of each text, the most likely first."""
    return run_over_texts(args, "classify", _classify)


def _classify(args: argparse.Namespace) -> None:
    def zero_shot(pipe: Any, texts: list[str]) -> list[list[dict[str, Any]]]:
        answers = pipe(texts, args.labels, args.template)
        return [
            [{"label": label, "score": score} for label, score in zip(answer["labels"], answer["scores"], strict=True)]
            for answer in answers
        ]

    def trained(pipe: Any, texts: list[str]) -> list[list[dict[str, Any]]]:
        how = {"truncation": args.long_texts == "cut", "windows": args.long_texts == "windows"}
        return pipe(texts, top_k=None, doc_stride=args.doc_stride, max_length=args.max_seq_length, **how)

    if args.labels and args.long_texts:
        raise InputError("--long: expected no --long with --labels, which classifies pairs of texts")
    task, ask = ("zero-shot-classification", zero_shot) if args.labels else ("text-classification", trained)
    for text, scores in answers_of(args, task, ask):
        if args.json:
            from bert_jax.inference.scoring import short

            rounded = [{"label": score["label"], "score": short(score["score"])} for score in scores]
            args.emit({"text": text, "scores": rounded})
        else:
            print_table(text, ("label", "score"), [(score["label"], f"{score['score']:.4f}") for score in scores])


def run_tag(args: argparse.Namespace) -> int:
    """Print the entities of each text and their character ranges."""
    return run_over_texts(args, "tag", _tag)


def _tag(args: argparse.Namespace) -> None:
    def trained(pipe: Any, texts: list[str]) -> Any:
        return pipe(texts, aggregation_strategy=args.strategy)

    def zero_shot(pipe: Any, texts: list[str]) -> Any:
        return pipe(texts, args.labels, args.threshold, not args.nested, args.multi_label)

    if args.labels is None and (args.nested or args.multi_label):
        raise InputError("--labels: expected types of entities with --nested and --multi-label, found none")
    task, ask = ("token-classification", trained) if args.labels is None else ("zero-shot-ner", zero_shot)
    for text, found in answers_of(args, task, ask):
        if args.json:
            args.emit({"text": text, "entities": found})
            continue
        rows = [
            (answer.get("label") or answer.get("entity_group") or answer["entity"], f"{answer['score']:.4f}",
             answer.get("text") or answer["word"], f"{answer['start']}-{answer['end']}")
            for answer in found
        ]  # fmt: skip
        print_table(text, ("entity", "score", "text", "characters"), rows)


def run_answer(args: argparse.Namespace) -> int:
    """Print the spans that answer each question, the most likely first."""
    return run_over_texts(args, "answer", _answer)


def _answer(args: argparse.Namespace) -> None:
    from bert_jax import storage

    if (args.context is None) == (args.text is None):
        raise InputError("expected the text that contains the answers, as --context FILE or as --text TEXT")
    context = storage.read_text(args.context, MOST_CONTEXT_BYTES) if args.text is None else args.text
    options = {"handle_impossible_answer": args.impossible, "max_answer_len": args.max_answer_length}

    def ask(pipe: Any, questions: list[str]) -> list[Any]:
        found = pipe(questions, context, top_k=args.top_k, doc_stride=args.doc_stride, **options)
        return [answers if isinstance(answers, list) else [answers] for answers in found]

    for question, answers in answers_of(args, "question-answering", ask):
        if args.json:
            args.emit({"question": question, "answers": answers})
            continue
        rows = [(f"{a['score']:.1%}", a["answer"] or "(none)", f"{a['start']}-{a['end']}") for a in answers]
        print_table(question, ("probability", "answer", "characters"), rows)


def run_text2text(args: argparse.Namespace) -> int:
    """Print the text that an encoder-decoder writes for each text."""
    return run_over_texts(args, "text2text", _text2text)


def _text2text(args: argparse.Namespace) -> None:
    names = ("num_beams", "max_length", "min_length", "length_penalty", "no_repeat_ngram_size", "temperature", "top_k",
             "top_p")  # fmt: skip
    options = {name: getattr(args, name) for name in names} | {"do_sample": args.sample}

    def ask(pipe: Any, texts: list[str]) -> Any:
        # Another seed for each call, since the random numbers of a text depend on its place in the call.
        return pipe(texts, seed=args.seed + args.counted, **options)

    for text, answer in answers_of(args, "text2text-generation", ask):
        if args.json:
            args.emit({"text": text, **answer})
        else:
            say(answer["generated_text"])


def run_embed(args: argparse.Namespace) -> int:
    """Print or write the vector of each text."""
    return run_over_texts(args, "embed", _embed)


def _embed(args: argparse.Namespace) -> None:
    def ask(pipe: Any, texts: list[str]) -> Any:
        options = vectors.vector_sizes(args, pipe.head)
        if pipe.head == "sentence_embedding":
            return pipe(
                texts, prompt=pipe.model.settings.prompt_of_task(args.task, args.prompt_name, args.prompt), **options
            )
        found = pipe(texts, task=args.task, prompt_name=args.prompt_name, prompt=args.prompt, **options)
        return (found[i : i + 1] for i in range(len(texts))) if pipe.head == "sparse_embedding" else found

    answers = answers_of(args, _embedding(args), ask)
    first = list(itertools.islice(answers, 1))  # which opens the model
    answers, head = itertools.chain(first, answers), args.pipe.head
    if head == "sparse_embedding":
        vectors.show_sparse(args, answers, args.pipe.decode, args.pipe.model.config.vocab_size)
    elif head == "multi_vector":
        vectors.show_multi_vector(args, answers)
    else:
        settings, size = args.pipe.model.settings, args.pipe.model.config.sentence_embedding_size
        dimensions = settings.dimension(args.truncate_dim)
        vectors.show_dense(args, answers, settings.similarity, min(size, dimensions or size))


def _embedding(args: argparse.Namespace) -> str:
    return f"{args.kind or 'sentence'}-embedding"


def run_over_texts(args: argparse.Namespace, name: str, verb: Callable[[argparse.Namespace], None]) -> int:
    """Run a verb over its texts, or over the texts of each file of --shards, and return the exit status."""
    if args.shards and (args.texts or args.file):
        raise InputError("--shards: expected neither texts nor --file, found both")
    if not shards.is_over_shards(args, "format", *([] if verb is _embed else ["out"])):
        verb(args)
        return 0
    suffix = f".{args.format or 'jsonl'}"
    if verb is _embed and args.format is None:
        _open(args, _embedding(args))
        suffix = ".npy" if args.pipe.head == "sentence_embedding" else ".npz"

    def answer(shard: shards.ShardFiles) -> int:
        one = copy.copy(args)
        one.file, one.out, one.json, one.counted = str(shard.source), str(shard.out), True, 0
        shard.out.parent.mkdir(parents=True, exist_ok=True)
        if verb is _embed:
            verb(one)
        else:
            with answer_tables.open_answers(shard.out, answer_tables.answer_columns(name, args)) as one.emit:
                verb(one)
        args.pipe = one.pipe
        return int(one.counted)

    return shards.over_shards(args, suffix, answer)


def _open(args: argparse.Namespace, task: str) -> Any:
    """Return the pipeline of the verb, which is opened once."""
    if args.pipe is None:
        from bert_jax.inference import pipeline

        device = "all" if args.shards or args.file else None
        options = {"device": device, "batch_invariant": args.batch_invariant}
        args.pipe = pipeline(task, args.model, args.dtype, args.batch_size, **options)
        if args.shards:  # so that answers do not depend on which files this process has read before
            args.pipe.use_every_length()
    return args.pipe


def answers_of(
    args: argparse.Namespace, task: str, ask: Callable[[Any, list[str]], Any], at_once: int | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield each input text with the pipeline's answer; `ask` is called with `at_once` texts at a time."""
    at_once = at_once or TEXTS_AT_ONCE
    if args.batch_size is not None and args.batch_size < 1:
        raise InputError(f"--batch-size: expected a positive integer, found {args.batch_size}")
    texts = stream.Texts(args, may_be_empty=bool(args.shards))
    left = iter(texts)
    chunk = list(itertools.islice(left, at_once))  # read before the model is opened, so that errors in texts come first
    pipe = _open(args, task)
    with stream.counting(not (args.shards or args.live) and (args.json or bool(args.out))) as done:
        while chunk:
            yield from _answered(texts, chunk, functools.partial(ask, pipe))
            done(len(chunk))
            args.counted += len(chunk)
            chunk = list(itertools.islice(left, at_once))
    if texts.skipped:
        complain(f"bert-jax: {texts.skipped:,} {'text' if texts.skipped == 1 else 'texts'} skipped")


def _answered(
    texts: stream.Texts, chunk: list[tuple[str, str]], ask: Callable[[list[str]], Any]
) -> Iterator[tuple[str, Any]]:
    """Yield texts with their answers, without texts that the model refuses and `texts` skips."""
    while chunk:
        given = [text for _, text in chunk]
        try:
            answers = ask(given)
        except TextError as error:
            where, _ = chunk.pop(error.number)
            texts.skip(InputError(f"{where}: {error.problem}"))
            continue
        yield from zip(given, answers, strict=True)
        return
