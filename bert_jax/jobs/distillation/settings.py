"""Distillation settings: the terms of the loss, and the layers of student and teacher that they compare.

The maths and its sources are in `bert_jax.jobs.distillation.objectives`.
"""

import dataclasses
from collections.abc import Mapping

from bert_jax.config import BertConfig
from bert_jax.errors import InputError, did_you_mean
from bert_jax.recipes import Recipe
from bert_jax.recipes.keys import TASK_RECIPES

TERMS = ("soft_labels", "hidden_states", "attentions", "relations", "last_hidden_state", "embeddings")
RELATIONS = {"qk": (0, 1), "qq": (0, 0), "kk": (1, 1), "vv": (2, 2)}  # name -> indices into (query, key, value)
_KEY = "config.distillation"

LayerPairs = tuple[tuple[int, int], ...]  # (student layer, teacher layer) from 0; -1 = the embeddings


@dataclasses.dataclass(frozen=True)
class Distillation:
    """The settings of a distillation.

    Attributes:
        teacher: model directory of the teacher.
        cache: directory of the teacher's cached outputs; "" = the teacher runs in every step.
        student_layers: layers of the teacher that the student starts from; () = none.
        student_embeddings: whether a narrower student starts from principal components of the teacher's embeddings.
        labels: weight of the task's own loss.
        weights: term of TERMS -> its weight, above 0.
        temperature: temperature of soft labels.
        layer_map: the pairs of layers to compare; () = evenly spaced.
        relations: names of RELATIONS.
        relation_heads: number of relation heads; 0 = the teacher's attention heads.
        relation_layer: layer of the teacher whose relations are learned; -1 = the last.
        embedding_distance: one of `bert_jax.recipes.shared_keys.DISTANCES`.
    """

    teacher: str
    cache: str
    student_layers: tuple[int, ...]
    student_embeddings: bool
    labels: float
    weights: Mapping[str, float]
    temperature: float
    layer_map: LayerPairs
    relations: tuple[str, ...]
    relation_heads: int
    relation_layer: int
    embedding_distance: str

    def layer_pairs(self, student: BertConfig, teacher: BertConfig) -> LayerPairs:
        """Return the pairs to compare; by default the embeddings, and layer m of M with layer (m + 1) N / M - 1 of N.

        Raises:
            InputError: a layer does not exist; or `layer_map` is not set, and N is not a multiple of M.
        """
        ours, theirs = student.num_hidden_layers, teacher.num_hidden_layers
        if not self.layer_map:
            if theirs % ours:
                raise InputError(
                    f"{_KEY}.layer_map: expected pairs of layers, as the teacher's {theirs} layers are no multiple of "
                    f"the student's {ours}, found none"
                )
            step = theirs // ours
            return ((-1, -1), *((layer, (layer + 1) * step - 1) for layer in range(ours)))
        for pair in self.layer_map:
            if not (-1 <= pair[0] < ours and -1 <= pair[1] < theirs):
                raise InputError(
                    f"{_KEY}.layer_map: expected (student layer, teacher layer) of -1 to {ours - 1} and -1 to "
                    f"{theirs - 1}, found {pair}"
                )
        return self.layer_map

    def check(self, student: BertConfig, teacher: BertConfig) -> None:
        """Raise InputError when the sizes of student and teacher do not allow a term of the loss."""
        widths = (student.hidden_size, teacher.hidden_size)
        if "last_hidden_state" in self.weights and widths[0] != widths[1]:
            raise InputError(
                f"{_KEY}.weights.last_hidden_state: expected a student with the teacher's hidden_size {widths[1]}, "
                f"found {widths[0]}; hidden_states and relations allow different widths"
            )
        if "attentions" in self.weights:
            _check_attentions(student, teacher)
        if {"hidden_states", "attentions"} & self.weights.keys():
            self.layer_pairs(student, teacher)
        if "relations" in self.weights:
            self._check_relations(widths, teacher)
            for config in (student, teacher):
                self._check_shared_keys(config, self.heads_of_relations(teacher))

    def heads_of_relations(self, teacher: BertConfig) -> int:
        """Return the number of relation heads."""
        return self.relation_heads or teacher.num_attention_heads

    def _check_relations(self, widths: tuple[int, int], teacher: BertConfig) -> None:
        heads, layers = self.heads_of_relations(teacher), teacher.num_hidden_layers
        if any(width % heads for width in widths):
            raise InputError(
                f"{_KEY}.relation_heads: expected a divisor of the student's hidden_size {widths[0]} and of the "
                f"teacher's {widths[1]}, found {heads}"
            )
        if self.relation_layer >= layers:
            raise InputError(
                f"{_KEY}.relation_layer: expected a layer of the teacher, -1 to {layers - 1}, "
                f"found {self.relation_layer}"
            )

    def _check_shared_keys(self, config: BertConfig, heads: int) -> None:
        """Raise InputError when keys that attention heads share are too narrow for the relations."""
        if config.attention.num_key_value_heads and "qk" in self.relations:
            raise InputError(
                f"{_KEY}.relations: expected qq, kk or vv, as keys that heads share (num_key_value_heads "
                f"{config.attention.num_key_value_heads}) are narrower than queries, found qk"
            )
        if config.key_value_width % heads:
            raise InputError(
                f"{_KEY}.relation_heads: expected a divisor of the width of keys, {config.key_value_width}, "
                f"found {heads}"
            )


def _check_attentions(student: BertConfig, teacher: BertConfig) -> None:
    key = f"{_KEY}.weights.attentions"
    if student.num_attention_heads != teacher.num_attention_heads:
        raise InputError(
            f"{key}: expected a student with the teacher's {teacher.num_attention_heads} attention heads, "
            f"found {student.num_attention_heads}; the term relations allows different numbers of heads"
        )
    for config in (student, teacher):
        is_sparse = config.attention.sparse
        is_rotary, shares_keys = (
            config.positions.kind == "rotary",
            config.attention.num_key_value_heads is not None,
        )
        if is_rotary or shares_keys or config.relative_positions or is_sparse:
            raise InputError(
                f"{key}: expected families whose attention scores are products of queries and keys, "
                f"found {config.family}; the term relations allows this family too"
            )


def read_settings(recipe: Recipe) -> Distillation | None:
    """Return the distillation settings of a resolved recipe, or None if it names no teacher.

    Raises:
        InputError: the settings are invalid, or the recipe has others that cannot be combined with distillation.
    """
    c = recipe.distillation
    weights = {term: c.weights[term] for term in TERMS if c.weights[term]}
    if not c.teacher:
        if weights:
            raise InputError(
                f"{_KEY}.teacher: expected a model directory, as {_KEY}.weights sets {', '.join(weights)}; found none"
            )
        return None
    _check_recipe(recipe, weights)
    if not weights:
        raise InputError(f"{_KEY}.weights: expected a weight above 0 for one of {', '.join(TERMS)}, found none")
    for name in c.relations:
        if name not in RELATIONS:
            raise InputError(f"{_KEY}.relations: {name!r} is not known{did_you_mean(str(name), RELATIONS)}")
    if "relations" in weights and not c.relations:
        raise InputError(f"{_KEY}.relations: expected at least one of {', '.join(RELATIONS)}, found none")
    if not all(isinstance(layer, int) and layer >= 0 for layer in c.student_layers):
        raise InputError(f"{_KEY}.student_layers: expected layers of the teacher from 0, found {c.student_layers!r}")
    if c.student_embeddings:
        for key, value in (("distillation.student_layers", c.student_layers), ("distillation.cache", c.cache),
                           ("init_from", recipe.init_from)):  # fmt: skip
            if value:
                raise InputError(f"config.{key}: expected none with distillation.student_embeddings, found {value}")
    for pair in c.layer_map:
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(layer, int) for layer in pair)):
            raise InputError(f"{_KEY}.layer_map: expected pairs (student layer, teacher layer), found {pair!r}")
    return Distillation(
        c.teacher, c.cache, tuple(c.student_layers), c.student_embeddings, c.weights.labels, weights, c.temperature,
        tuple(c.layer_map), tuple(c.relations), c.relation_heads, c.relation_layer, c.embedding_distance,
    )  # fmt: skip


def _check_recipe(recipe: Recipe, weights: Mapping[str, float]) -> None:
    """Raise InputError for settings of a recipe that cannot be combined with distillation."""
    if recipe.distillation.cache and not TASK_RECIPES[recipe.task].teacher_cache:
        expected = ", ".join(name for name, task in TASK_RECIPES.items() if task.teacher_cache)
        raise InputError(f"{_KEY}.cache: expected a task that can cache a teacher's outputs, one of {expected}, "
                         f"found {recipe.task}")  # fmt: skip
    for key, value in (("lora.rank", recipe.lora.rank), ("reinit_layers", recipe.reinit_layers)):
        if value:
            raise InputError(f"config.{key}: expected 0 with distillation, found {value}")
    within_batch = "embeddings" in weights and recipe.distillation.embedding_distance == "similarities"
    if within_batch and recipe.accumulation_steps > 1:
        raise InputError(
            "config.accumulation_steps: expected 1 for embedding_distance 'similarities', which compares all rows of a "
            f"batch, found {recipe.accumulation_steps}"
        )


def check_terms(settings: Distillation, head: str) -> None:
    """Raise InputError when a term of the loss does not fit the head of the task, or cached outputs."""
    fitting_term, other = ("soft_labels", "embeddings")[:: -1 if head == "sentence_embedding" else 1]
    if other in settings.weights:
        raise InputError(f"{_KEY}.weights.{other}: expected 0 for head {head!r}, whose outputs are {fitting_term}, "
                         f"found {settings.weights[other]:g}")  # fmt: skip
    if settings.cache and settings.weights.keys() != {fitting_term}:
        expected = "soft_labels (of classes or tags) or embeddings as the only term of the teacher"
        raise InputError(f"{_KEY}.cache: expected {expected}, found {', '.join(settings.weights)} with head {head!r}")
