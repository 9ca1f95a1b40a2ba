"""The verb `text2text`: generate texts with an encoder-decoder."""

import argparse
from typing import Any

from bert_jax.cli import shards
from bert_jax.cli.output import say
from bert_jax.cli.over_texts import add_text_flags, answers_of, run_over_texts
from bert_jax.cli.signatures import ParameterFlags
from bert_jax.cli.verbs import Verbs, add_verb

_CALL = "bert_jax.tasks.sequence_to_sequence.pipeline.Text2TextGeneration.__call__"
_SEARCH = ParameterFlags(
    _CALL, "num_beams", "max_length", "min_length", "length_penalty", "no_repeat_ngram_size", sample="do_sample"
)
_SAMPLING = ParameterFlags(_CALL, "temperature", "top_k", "top_p", "seed")
_COLUMNS = {"text": "string", "generated_text": "string"}


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    text2text = add_verb(
        verbs,
        "text2text",
        run_text2text,
        "generate a text from each text with an encoder-decoder: a summary, a translation",
        "The defaults are the settings in the model's generation_config.json.",
        """bert-jax text2text runs/summaries/model "The river rose all night, and in the morning the bridge was gone."
           bert-jax text2text runs/summaries/model --file articles.txt --num-beams 4 --max-length 80 --json
           bert-jax text2text runs/summaries/model "Once upon a time" --sample --temperature 0.8 --seed 1""",
    )
    _SEARCH.declare(text2text)
    _SAMPLING.declare(text2text.add_argument_group("sampling (--sample)"))
    shards.add_answer_files(text2text)
    add_text_flags(text2text)


def run_text2text(args: argparse.Namespace) -> int:
    """Print the text that an encoder-decoder generates from each text."""
    return run_over_texts(args, _text2text, _COLUMNS)


def _text2text(args: argparse.Namespace) -> None:
    options = _SEARCH.values(args) | _SAMPLING.values(args)

    def predict(pipe: Any, texts: list[str]) -> Any:
        # Each call gets its own seed, since the random numbers of a text depend on its position in the call.
        return pipe(texts, **options | {"seed": args.seed + args.counted})

    for text, answer in answers_of(args, "text2text-generation", predict):
        if args.json:
            args.emit({"text": text, **answer})
        else:
            say(answer["generated_text"])
