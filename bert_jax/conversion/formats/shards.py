"""Open weights that are split into several files, by their index."""

from collections.abc import Callable

from bert_jax import storage
from bert_jax.conversion.formats import lazy_tensors
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.errors import InputError


def open_shards(index: storage.Path, open_shard: Callable[[storage.Path], Tensors], has_stacks: bool) -> Tensors:
    """Open the shards that an index lists; return each tensor from the shard that the index names.

    Args:
        index: path of the index.
        open_shard: function that opens a shard.
        has_stacks: whether the index may list a stack of layers as one name; then all tensors of the shards are used.

    Raises:
        InputError: the index is damaged, or a shard or a tensor is missing.
    """
    with storage.open_offsets(index) as file, lazy_tensors.about(index):
        text = file.read(0, min(file.size, lazy_tensors.LONGEST_DESCRIPTION + 1))
        weight_map = lazy_tensors.parse_header(text, "a weight_map").get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise InputError(f"{index}: expected a weight_map of tensor names to file names")
    beside = {path.name for path in index.parent.iterdir()}
    shards: dict[str, Tensors] = {}
    for shard in sorted(set(weight_map.values())):
        if "/" in shard or "\\" in shard:
            raise InputError(f"{index}: expected the name of a file beside it, found {shard[:80]!r}")
        if shard not in beside:
            raise InputError(f"{index}: expected the shard {shard[:80]!r} beside it, found no such file")
        shards[shard] = open_shard(index.parent / shard)
    if has_stacks:
        tensors: Tensors = {}
        for shard, held in shards.items():
            if twice := sorted(tensors.keys() & held.keys()):
                raise InputError(f"{index}: expected array {twice[0]!r} in one shard, found it in {shard} too")
            tensors |= held
        return tensors
    for name, shard in weight_map.items():
        if name not in shards[shard]:
            raise InputError(f"{index}: expected a tensor {name!r} in {shard}, found none")
    return {name: shards[shard][name] for name, shard in weight_map.items()}
