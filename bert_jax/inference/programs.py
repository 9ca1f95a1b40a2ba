"""The compiled forward pass, cached on disk so that a later process neither traces nor compiles it."""

import contextlib
import functools
import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import serialize_executable
from jax.sharding import Mesh, NamedSharding

from bert_jax import program_cache, sharding
from bert_jax.forks import check_fork
from bert_jax.modeling import Bert, Params

Output = dict[str, Any]  # fields of `BertOutput` that are not None


class _Program(NamedTuple):
    """Everything that determines a compiled program: the key of the cache in memory."""

    bert: Bert
    fields: tuple[str, ...]
    output_hidden_states: bool
    output_attentions: bool
    params: tuple[Any, ...]  # the tree's structure, and (shape, dtype) of each leaf
    inputs: tuple[tuple[str, tuple[int, ...], str], ...]
    device: jax.Device
    jax_options: tuple[Any, ...]


_programs: dict[_Program, Callable[[Params, Mapping[str, np.ndarray]], Output]] = {}


def compile_forward(
    bert: Bert,
    params: Params,
    inputs: Mapping[str, np.ndarray],
    fields: tuple[str, ...],
    output_hidden_states: bool = False,
    output_attentions: bool = False,
) -> Callable[[Params, Mapping[str, np.ndarray]], Output]:
    """Return the compiled forward pass, a function of `params` and `inputs` that does not wait for its output.

    Args:
        bert: the model.
        params: its parameters.
        inputs: arguments of `Bert.apply` by name, of the shapes for which to compile.
        fields: fields of `BertOutput` to compute, () = all.
        output_hidden_states: whether to return all hidden states.
        output_attentions: whether to return all attention maps.
    """
    check_fork()
    options = (fields, output_hidden_states, output_attentions)
    leaves, tree = jax.tree.flatten(params)
    device = _device_of(leaves)
    if device is None:
        return functools.partial(_run_on_mesh, mesh_of(params), bert, options)
    program = _Program(
        bert,
        *options,
        (tree, tuple((leaf.shape, leaf.dtype.name) for leaf in leaves)),
        tuple((name, array.shape, array.dtype.name) for name, array in inputs.items()),
        device,
        program_cache.jax_options(),
    )
    if program not in _programs:
        _programs[program] = _load_or_compile(program, params, inputs)
    return _programs[program]


def _device_of(leaves: list[Any]) -> jax.Device | None:
    """Return the device of all parameters; None if there are several, or if JAX's settings require `jax.jit`."""
    config: Any = jax.config
    if config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs or config.jax_default_device:
        return None
    if not all(isinstance(leaf, jax.Array) for leaf in leaves):
        return None
    devices = {device for leaf in leaves for device in leaf.sharding.device_set}
    return devices.pop() if len(devices) == 1 else None


def mesh_of(params: Params) -> Mesh | None:
    """Return the mesh of the devices that hold the parameters; None if they are on one device."""
    leaf = jax.tree.leaves(params)[0]
    spread = isinstance(leaf, jax.Array) and isinstance(leaf.sharding, NamedSharding) and leaf.sharding.num_devices > 1
    return leaf.sharding.mesh if spread else None


def _run_on_mesh(
    mesh: Mesh | None, bert: Bert, options: tuple[Any, ...], params: Params, inputs: Mapping[str, Any]
) -> Output:
    if mesh is None:
        return _forward(bert, params, inputs, *options)
    split = NamedSharding(mesh, sharding.batch_spec())
    with jax.set_mesh(mesh):
        return _forward(bert, params, jax.device_put(dict(inputs), split), *options)


def _load_or_compile(program: _Program, params: Params, inputs: Mapping[str, np.ndarray]) -> Any:
    """Load the compiled program from the disk cache, or compile it and add it to the cache."""
    device = program.device
    where = (device.platform, device.device_kind, device.id, device.client.platform_version)
    if device.platform == "tpu":
        where += (os.environ.get("LIBTPU_INIT_ARGS"),)
    structure, shapes = program.params
    described = (*program[:4], str(structure), shapes, program.inputs, where)
    name = program_cache.fingerprint("forward", described)
    if (cached := program_cache.read_entry(name)) is not None:
        with contextlib.suppress(Exception):  # JAX does not document which error a damaged entry raises
            head, _, content = cached.partition(b"\n")
            outputs = {field: (0,) * count if count else 0 for field, count in json.loads(head).items()}
            arguments = jax.tree.structure(((params, inputs), {}))
            return serialize_executable.deserialize_and_load(
                content, arguments, jax.tree.structure(outputs), device.client, [device]
            )
    lowered = _forward_named(f"forward_{name}").lower(program.bert, params, inputs, *program[1:4])
    _compiling.from_cache = False
    compiled = lowered.compile()
    if _compiling.from_cache:
        return compiled
    with contextlib.suppress(ValueError, NotImplementedError, RuntimeError):  # JAX cannot serialize the program
        content, _, outputs = serialize_executable.serialize(compiled)
        fields = jax.tree.unflatten(outputs, [0] * outputs.num_leaves)
        head = json.dumps({field: len(value) if value else 0 for field, value in fields.items()})
        program_cache.write_entry(name, head.encode() + b"\n" + content)
    return compiled


# On a CPU, a program that JAX read from its own cache is serialized without its machine code, so that it must not be
# written to ours. This is rare, as the program has the name of our entry, and the name is a part of JAX's key.
_compiling = threading.local()


def _note_cache_hit(event: str, **_: object) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _compiling.from_cache = True


jax.monitoring.register_event_listener(_note_cache_hit)


def _forward_named(name: str) -> Any:
    """Return the forward pass, compiled under a name."""

    def forward(
        bert: Bert,
        params: Params,
        inputs: Mapping[str, Any],
        fields: tuple[str, ...],
        output_hidden_states: bool,
        output_attentions: bool,
    ) -> Output:
        output = bert.apply(
            params,
            **inputs,
            output_last_hidden_state=not fields or "last_hidden_state" in fields,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        values = {field: value for field, value in vars(output).items() if value is not None}
        return {field: value for field, value in values.items() if not fields or field in fields}

    forward.__name__ = name
    return jax.jit(forward, static_argnames=("bert", "fields", "output_hidden_states", "output_attentions"))


_forward: Callable[..., Output] = _forward_named("forward")
