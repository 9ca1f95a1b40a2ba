"""Parse a compiled HLO program: its collectives, their number of runs, and the bytes moved to and from memory.

The text of an optimised, partitioned module is the program of one device, in order of execution.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4,
          "s64": 8, "u64": 8, "f64": 8, "c64": 8}  # fmt: skip
# Instructions that neither compute nor move data.
_FREE = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "after-all", "partition-id", "while",
         "conditional", "call", "opt-barrier"}  # fmt: skip

_WORK = {"fusion", "convolution", "dot", "custom-call", "while"}

_INSTRUCTION = re.compile(r"\s+(ROOT )?%([\w.-]+) = (.*?) ([a-z][\w-]*)\((.*)$")
_ARRAY = re.compile(r"\b(\w+)\[([\d,]*)\](\{[^{}]*\})?")
_CALLED = re.compile(r"\b(?:calls|body|branch_computations|called_computations)=\{?((?:%[\w.-]+(?:, )?)+)")


@dataclasses.dataclass(frozen=True)
class Array:
    """An array of a device: its dtype, its shape, and whether it is in HBM."""

    dtype: str
    shape: tuple[int, ...]
    in_hbm: bool

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * _BYTES.get(self.dtype, 4)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation: `name = arrays opcode(operands), attributes`."""

    name: str
    arrays: tuple[Array, ...]
    opcode: str
    rest: str
    is_root: bool

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        """Return the names of the operands."""
        depth = 0
        for end, letter in enumerate(self.rest):
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if depth < 0:
                return tuple(re.findall(r"%([\w.-]+)", self.rest[:end]))
        return ()

    @property
    def results(self) -> tuple[Array, ...]:
        """Return the arrays that the instruction produces, without the operand and context that a `-start` lists."""
        if self.opcode == "copy-start":
            return self.arrays[:1]
        if self.opcode == "all-reduce-start" or not self.opcode.endswith("-start"):
            return self.arrays
        return self.arrays[1:2]

    @functools.cached_property
    def called(self) -> tuple[str, ...]:
        """Return the names of the computations that the instruction runs, except reducers of two numbers."""
        return tuple(name for group in _CALLED.findall(self.rest) for name in re.findall(r"%([\w.-]+)", group))

    def attribute(self, pattern: str) -> str | None:
        """Return the first group of the pattern's match in the attributes; None without a match."""
        match = re.search(pattern, self.rest)
        return match.group(1) if match else None


@dataclasses.dataclass(frozen=True)
class Collective:
    """A collective of the program.

    Attributes:
        kind: one of COLLECTIVES.
        axes: mesh axes over which it runs.
        devices: number of devices in each group.
        num_bytes: bytes of the whole array that is gathered, reduced or scattered, on each device.
        times: number of runs in a step.
        hidden: whether it overlaps with other work.
        network: whether it is between slices, over the network of their hosts.
    """

    kind: str
    axes: tuple[str, ...]
    devices: int
    num_bytes: int
    times: int
    hidden: bool
    network: bool = False

    @property
    def wire_bytes(self) -> float:
        """Return the bytes that a device sends in a step with ring algorithms (Chan et al. 2007, 10.1002/cpe.1206)."""
        passed = (self.devices - 1) / self.devices
        rounds = {"all-reduce": 2 * passed, "collective-permute": 1.0}.get(self.kind, passed)
        return self.num_bytes * rounds * self.times


class HloModule:
    """A parsed HLO module.

    Args:
        text: the result of `jax.stages.Compiled.as_text`.
    """

    def __init__(self, text: str):
        self.computations: dict[str, list[Instruction]] = {}
        self.entry = ""
        name = ""
        for line in text.splitlines():
            if line.endswith("{") and (match := re.match(r"(ENTRY )?%([\w.-]+) \(", line)):
                name = match.group(2)
                self.entry = name if match.group(1) else self.entry
                self.computations[name] = []
            elif name and (match := _INSTRUCTION.match(line)):
                root, label, shape, opcode, rest = match.groups()
                self.computations[name].append(Instruction(label, _arrays(shape), opcode, rest, bool(root)))

    def scheduled(self) -> Iterator[tuple[list[Instruction], int]]:
        """Yield each scheduled computation (not inside a fusion), and its number of runs in a step."""
        yield from self._scheduled(self.entry, 1)

    def _scheduled(self, name: str, times: int) -> Iterator[tuple[list[Instruction], int]]:
        yield self.computations[name], times
        for instruction in self.computations[name]:
            if instruction.opcode in ("while", "conditional", "call"):
                trips = self._trips(instruction) if instruction.opcode == "while" else 1
                for called in instruction.called:
                    yield from self._scheduled(called, times * trips)

    def _trips(self, loop: Instruction) -> int:
        """Return the trip count of a loop with a constant limit, such as those of `jax.lax.scan` and of XLA itself."""
        if known := loop.attribute(r"known_trip_count\W+n\W+(\d+)"):
            return int(known)
        condition = loop.attribute(r"condition=%([\w.-]+)") or ""
        constants = (i for i in self._reached(condition) if i.opcode == "constant")
        limits = [int(limit.group(1)) for i in constants if (limit := re.match(r"(\d+)\)", i.rest))]
        return max(limits, default=1)

    def _reached(self, name: str) -> Iterator[Instruction]:
        for instruction in self.computations.get(name, ()):
            yield instruction
            for called in instruction.called:
                yield from self._reached(called)

    def collectives(self, mesh_shape: dict[str, int], num_slices: int = 1) -> list[Collective]:
        """Return the collectives of a step, each once.

        Args:
            mesh_shape: mesh axis -> number of devices; axis `data` spans the slices.
            num_slices: number of slices.
        """
        by_channel: dict[str, Collective] = {}
        for instructions, times in self.scheduled():
            for index, instruction in enumerate(instructions):
                inner = [i for called in instruction.called for i in self._reached(called)]
                inside = [] if instruction.opcode in ("while", "conditional", "call") else inner
                if transfer := instruction.attribute(r'_xla_megascale_transfer_type="(\w+)"'):
                    if instruction.opcode == "send":
                        by_channel[instruction.name] = Collective(
                            transfer.lower().replace("_", "-"), ("data",), num_slices, instruction.arrays[0].num_bytes,
                            times, self._hidden_send(instructions, index), network=True,
                        )  # fmt: skip
                    continue
                for part in (instruction, *inside):
                    kind = part.opcode.removesuffix("-start")
                    channel = part.attribute(r"channel_id=(\d+)") or part.name
                    if kind in COLLECTIVES and channel not in by_channel:
                        by_channel[channel] = self._collective(part, kind, times, mesh_shape, instructions, index)
        return list(by_channel.values())

    def _collective(
        self,
        part: Instruction,
        kind: str,
        times: int,
        mesh: dict[str, int],
        instructions: Sequence[Instruction],
        index: int,
    ) -> Collective:
        axes = _axes(part, mesh)
        devices = math.prod(mesh[axis] for axis in axes)
        size = sum(array.num_bytes for array in part.results)
        if kind == "reduce-scatter":
            size *= devices
        # An all-reduce fused with the slicing of the part that a device keeps runs as a reduce-scatter.
        if part.opcode == "all-reduce" and any("all-reduce-scatter" in name for name in instructions[index].called):
            kind = "reduce-scatter"
        return Collective(kind, axes, devices, size, times, self._hidden(instructions, index))

    def _hidden(self, instructions: Sequence[Instruction], index: int) -> bool:
        """Return whether work is scheduled between the start and the end of the collective at `index`."""
        start = instructions[index]
        starts = start.opcode.endswith("-start") or "AsyncCollectiveStart" in self._targets(start)
        if not starts:
            return False
        waiting = {start.name}
        for instruction in instructions[index + 1 :]:
            takes = waiting & set(instruction.operands)
            if takes and instruction.opcode in ("get-tuple-element", "bitcast", "tuple", "copy"):
                waiting.add(instruction.name)
            elif takes:
                # A fusion that continues the collective while it computes counts as work.
                return instruction.opcode == "fusion" and "AsyncCollectiveDone" not in self._targets(instruction)
            elif instruction.opcode in _WORK:
                return True
        return False

    def _hidden_send(self, instructions: Sequence[Instruction], index: int) -> bool:
        """Return whether work is scheduled between the send at `index` and the matching receive."""
        pattern = r'_xla_host_transfer_rendezvous="([^"]+)"'
        rendezvous = instructions[index].attribute(pattern)
        after = instructions[index + 1 :]
        answers = {i.name for i in instructions if i.opcode == "recv" and i.attribute(pattern) == rendezvous}
        end = next((n for n, i in enumerate(after) if i.opcode == "recv-done" and answers & set(i.operands)), 0)
        return any(i.opcode in _WORK for i in after[:end])

    def _targets(self, instruction: Instruction) -> set[str]:
        parts = [instruction, *(i for called in instruction.called for i in self._reached(called))]
        return {target for part in parts if (target := part.attribute(r'custom_call_target="(\w+)"'))}

    def hbm_bytes(self) -> int:
        """Return the bytes that a device reads from and writes to HBM in a step."""
        return sum(
            times * self._traffic(instruction, instructions)
            for instructions, times in self.scheduled()
            for instruction in instructions
            if instruction.opcode not in _FREE
        )

    def _traffic(self, instruction: Instruction, neighbours: Sequence[Instruction]) -> int:
        if instruction.opcode.endswith("-done"):
            return 0  # its traffic is counted at the `-start` instruction
        if instruction.attribute(r'custom_call_target="(AllocateBuffer)"'):
            return 0
        before = _by_name(neighbours)
        arrays = [before[name].arrays if name in before else () for name in instruction.operands]
        if instruction.opcode == "fusion":
            inside = _Inside(self, self.computations[instruction.called[0]])
        else:
            inside = _Inside.alone(self, instruction, arrays)
        read = sum(
            min(operand[0].num_bytes, inside.taken(number))
            for number, operand in enumerate(arrays)
            if len(operand) == 1 and operand[0].in_hbm
        )
        results = instruction.results
        changed = inside.changed() if len(results) == len(inside.results) else [None] * len(results)
        written = sum(
            array.num_bytes if part is None else part
            for array, part in zip(results, changed, strict=True)
            if array.in_hbm
        )
        return read + written


class _Inside:
    """The instructions of a fusion, to count the bytes that they read from operands and write to results."""

    def __init__(self, module: HloModule, instructions: Sequence[Instruction]):
        self._module = module
        self._instructions = instructions
        self._names = _by_name(instructions)
        root = next(i for i in instructions if i.is_root)
        elements = [self._names[name] for name in root.operands] if root.opcode == "tuple" else [root]
        self.results = [self._made_by(element) for element in elements]

    @classmethod
    def alone(cls, module: HloModule, instruction: Instruction, operands: Sequence[tuple[Array, ...]]) -> Self:
        """Wrap one instruction as a fusion."""
        parameters = [
            Instruction(name, arrays, "parameter", f"{number})", False)
            for number, (name, arrays) in enumerate(zip(instruction.operands, operands, strict=True))
        ]
        return cls(module, [*parameters, dataclasses.replace(instruction, is_root=True)])

    def taken(self, number: int) -> int:
        """Return the bytes read from operand `number`; if only slices of it are used, the bytes of the slices."""
        parameters = (i for i in self._instructions if i.opcode == "parameter" and i.rest.startswith(f"{number})"))
        return self._read(next(parameters))

    def _read(self, instruction: Instruction) -> int:
        total = 0
        for user in self._instructions:
            if instruction.name not in user.operands:
                continue
            if self._forwards(user) and not user.is_root:
                total += self._read(user)
            elif user.opcode == "fusion":
                inner = _Inside(self._module, self._module.computations[user.called[0]])
                total += sum(inner.taken(n) for n, name in enumerate(user.operands) if name == instruction.name)
            elif user.opcode in ("dynamic-slice", "slice", "gather") and user.operands[0] == instruction.name:
                total += sum(array.num_bytes for array in user.arrays)
            elif user.opcode != "dynamic-update-slice" or user.operands[0] != instruction.name:
                return sum(array.num_bytes for array in instruction.arrays)
        return min(total, sum(array.num_bytes for array in instruction.arrays))

    def changed(self) -> list[int | None]:
        """Return for each result the bytes written in place, or None if all of it is written."""
        return [
            sum(array.num_bytes for array in self._names[result.operands[1]].arrays)
            if result.opcode == "dynamic-update-slice"
            else None
            for result in self.results
        ]

    def _made_by(self, instruction: Instruction) -> Instruction:
        while self._forwards(instruction):
            instruction = self._names[instruction.operands[0]]
        return instruction

    def _forwards(self, instruction: Instruction) -> bool:
        """Return whether an instruction only changes its operand's layout, which moves no data inside a fusion."""
        if instruction.opcode != "fusion":
            return instruction.opcode in ("bitcast", "copy")
        inner = self._module.computations[instruction.called[0]]
        return all(i.opcode in ("parameter", "bitcast", "copy") for i in inner) and len(instruction.operands) == 1


def _by_name(instructions: Sequence[Instruction]) -> dict[str, Instruction]:
    return {instruction.name: instruction for instruction in instructions}


def _arrays(shape: str) -> tuple[Array, ...]:
    """Parse `f32[8,2]{1,0:T(8,128)S(1)}` or a tuple of such arrays; `S(n)` is a memory other than HBM."""
    return tuple(
        Array(dtype, tuple(int(size) for size in sizes.split(",") if size), "S(" not in layout)
        for dtype, sizes, layout in _ARRAY.findall(shape)
    )


def _axes(part: Instruction, mesh: dict[str, int]) -> tuple[str, ...]:
    """Return the mesh axes over which a collective runs: those along which members of a group differ."""
    shape = tuple(mesh.values())
    first = _first_group(part, math.prod(shape))
    places = np.array(np.unravel_index(first, shape))
    return tuple(axis for axis, row in zip(mesh, places, strict=True) if len(set(row.tolist())) > 1)


def _first_group(part: Instruction, devices: int) -> list[int]:
    """Return the devices of the first group of a collective, from any of XLA's notations."""
    if pairs := part.attribute(r"source_target_pairs=\{\{([\d,]+)\}"):
        return [int(n) for n in pairs.split(",")]
    if replica_ids := part.attribute(r"replica_groups=\{\{([\d,]+)\}"):
        return [int(n) for n in replica_ids.split(",")]
    if match := re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", part.rest):
        groups, dims, order = ([int(n) for n in (text or "").split(",") if n] for text in match.groups())
        ids = np.arange(math.prod(dims)).reshape(dims)
        return (ids.transpose(order) if order else ids).reshape(groups)[0].tolist()
    if match := re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", part.rest):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", match.group(1))}
        over = re.findall(r"'([^']+)'", match.group(2))
        ids = np.arange(math.prod(sizes.values())).reshape(list(sizes.values()))
        return ids[tuple(slice(None) if name in over else 0 for name in sizes)].ravel().tolist()
    return list(range(devices))
