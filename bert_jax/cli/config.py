"""The verb `config`: list the recipes, or the keys of one recipe with values and meanings."""

import argparse
import json

from bert_jax.cli.output import say
from bert_jax.cli.verbs import Verbs, add_verb


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb `config`."""
    config = add_verb(
        verbs,
        "config",
        run_config,
        "list the recipes, or the keys of one recipe",
        "Without RECIPE, lists the recipes that come with bert_jax. With RECIPE, prints each of its keys: the value, "
        "the task's default if that differs, the meaning, and the allowed values.",
        """bert-jax config
           bert-jax config classification
           bert-jax config bert_base optimizer
           bert-jax config runs/sst2 optimizer.learning_rate --json""",
    )
    config.add_argument(
        "recipe", nargs="?", default="", metavar="RECIPE[:ARG]", help="name or file of a recipe, or a work directory"
    )
    config.add_argument("key", nargs="?", default="", metavar="KEY", help="one key, or a group of keys such as data")
    config.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    config.add_argument(
        "--config.KEY", dest="_", metavar="VALUE", help="change a value of the recipe before it is shown"
    )
    config.set_defaults(overrides=[])


def run_config(args: argparse.Namespace) -> None:
    """Print the recipes, or the keys of one recipe."""
    from bert_jax.cli.train import overrides_of
    from bert_jax.recipes import load_recipe
    from bert_jax.recipes.describe import describe_keys, key_as_json, shown_value
    from bert_jax.recipes.shipped import recipe_names, summary

    if not args.recipe:
        summaries = {name: summary(name) for name in recipe_names()}
        if args.json:
            print(json.dumps({"recipes": summaries}, indent=2))
            return
        for name, line in summaries.items():
            say(f"{name:<22} {line}")
        say("\n`bert-jax config RECIPE` prints the keys of one.")
        return
    recipe = load_recipe(args.recipe, overrides_of(args.overrides))
    described = describe_keys(recipe, args.key)
    if args.json:
        keys = [key_as_json(item) for item in described]
        print(json.dumps({"recipe": args.recipe, "task": recipe.task, "keys": keys}, indent=2))
        return
    for item in described:
        differs = f" (default: {shown_value(item.default)})" if item.value != item.default else ""
        say(f"{item.name} = {shown_value(item.value)}{differs}")
        say(f"    {item.key.meaning} [{item.key.allowed()}]")
