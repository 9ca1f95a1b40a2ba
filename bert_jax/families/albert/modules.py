"""Layers that share parameters (Lan et al. 2020, arXiv:1909.11942, section 3.1)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.stack import ArrayTree, LayerParams, MakeLayers, Stack


class TiedParams(LayerParams):
    """The parameters of layers that share rows: each layer indexes its row of the arrays, so that none is copied."""

    def __init__(self, layers: nnx.Module, rows: Sequence[int]):
        super().__init__(layers)
        self.rows = np.array(rows)

    def slice(self, start: int, stop: int) -> ArrayTree:
        return self.rows[start:stop]

    def unstacked(self, rows: ArrayTree, start: int, count: int) -> list[ArrayTree]:
        return list(rows)

    def layer(self, i: int, row: ArrayTree) -> tuple[nnx.GraphDef, ArrayTree]:
        return self.graph, jax.tree.map(lambda leaf: leaf[row], self.state)


@dataclasses.dataclass(frozen=True)
class Tied(Stack):
    """Groups of layers; a group's layers run in order, several times."""

    def build(self, config: BertConfig, make_layers: MakeLayers) -> dict[str, nnx.Module]:
        return {"layers": make_layers(config.num_parameter_rows)}

    def rows(self, config: BertConfig, encoder: Any) -> LayerParams:
        return TiedParams(encoder.layers, config.parameter_rows)
