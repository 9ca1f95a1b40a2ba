"""Reading a compiled program: a small one, written as the TPU compiler writes, with sums that can be done by hand."""

import pytest

from bert_jax.planning.hlo import HloModule

MESH = {"data": 2, "fsdp": 4, "tensor": 2}

PROGRAM = """\
HloModule jit_step, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[]{:T(128)} parameter(0)
  %y = f32[]{:T(128)} parameter(1)
  ROOT %sum = f32[]{:T(128)} add(%x, %y)
}

%all-reduce-scatter.1 (whole: f32[8,256]) -> f32[8,64] {
  %whole = f32[8,256]{1,0:T(8,128)} parameter(0)
  %all = f32[8,256]{1,0:T(8,128)} all-reduce(%whole), channel_id=4, replica_groups={{0,2,4,6},{1,3,5,7}}, to_apply=%add
  %place = s32[]{:T(128)} constant(0)
  ROOT %mine = f32[8,64]{1,0:T(8,128)} dynamic-slice(%all, %place, %place), dynamic_slice_sizes={8,64}
}

%layer_of (stack: f32[3,8,128], number: s32[]) -> f32[8,128] {
  %stack = f32[3,8,128]{2,1,0:T(8,128)} parameter(0)
  %number = s32[]{:T(128)} parameter(1)
  %slice = f32[1,8,128]{2,1,0:T(8,128)} dynamic-slice(%stack, %number), dynamic_slice_sizes={1,8,128}
  ROOT %layer = f32[8,128]{1,0:T(8,128)} bitcast(%slice)
}

%condition (state: (s32[], f32[3,8,128])) -> pred[] {
  %state = (s32[]{:T(128)}, f32[3,8,128]{2,1,0:T(8,128)}) parameter(0)
  %counter = s32[]{:T(128)} get-tuple-element(%state), index=0
  %limit = s32[]{:T(128)} constant(3)
  ROOT %less = pred[]{:T(512)} compare(%counter, %limit), direction=LT
}

%body (state.1: (s32[], f32[3,8,128])) -> (s32[], f32[3,8,128]) {
  %state.1 = (s32[]{:T(128)}, f32[3,8,128]{2,1,0:T(8,128)}) parameter(0)
  %counter.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  %stack.1 = f32[3,8,128]{2,1,0:T(8,128)} get-tuple-element(%state.1), index=1
  %weights = f32[8,128]{1,0:T(8,128)} fusion(%stack.1, %counter.1), kind=kLoop, calls=%layer_of
  %reduced = f32[8,128]{1,0:T(8,128)S(1)} all-reduce(%weights), channel_id=1, replica_groups=[8,2]<=[16], to_apply=%add
  %passing = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)S(1)}, u32[]{:S(2)}) collective-permute-start(%reduced), channel_id=2, source_target_pairs={{0,2},{2,4},{4,6},{6,0},{1,3}}
  %passed = f32[8,128]{1,0:T(8,128)S(1)} collective-permute-done(%passing)
  ROOT %next = (s32[]{:T(128)}, f32[3,8,128]{2,1,0:T(8,128)}) tuple(%counter.1, %stack.1)
}

ENTRY %main (p: f32[3,8,128], q: bf16[2,128]) -> bf16[8,128] {
  %p = f32[3,8,128]{2,1,0:T(8,128)} parameter(0)
  %q = bf16[2,128]{1,0:T(8,128)(2,1)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  %sums = f32[8,256]{1,0:T(8,128)S(1)} constant({...})
  %start = (s32[]{:T(128)}, f32[3,8,128]{2,1,0:T(8,128)}) tuple(%zero, %p)
  %gathering = (bf16[2,128]{1,0:T(8,128)(2,1)}, bf16[8,128]{1,0:T(8,128)(2,1)}) all-gather-start(%q), channel_id=3, replica_groups=mesh['a'=2,'b'=4,'c'=2] {'b'}, dimensions={0}
  %loop = (s32[]{:T(128)}, f32[3,8,128]{2,1,0:T(8,128)}) while(%start), condition=%condition, body=%body
  %scattered = f32[8,64]{1,0:T(8,128)S(1)} fusion(%sums), kind=kCustom, calls=%all-reduce-scatter.1
  ROOT %gathered = bf16[8,128]{1,0:T(8,128)(2,1)} all-gather-done(%gathering)
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def collectives():
    return {collective.kind: collective for collective in HloModule(PROGRAM).collectives(MESH)}


def test_each_collective_is_found_once_with_the_axes_of_its_groups(collectives):
    assert {kind: (found.axes, found.devices) for kind, found in collectives.items()} == {
        "all-gather": (("fsdp",), 4),
        "all-reduce": (("tensor",), 2),
        "collective-permute": (("fsdp",), 4),
        "reduce-scatter": (("fsdp",), 4),
    }


def test_those_in_a_loop_run_as_often_as_it(collectives):
    assert {kind: found.times for kind, found in collectives.items()} == {
        "all-gather": 1,
        "all-reduce": 3,
        "collective-permute": 3,
        "reduce-scatter": 1,
    }


def test_bytes_on_the_wire_are_those_of_a_ring(collectives):
    assert collectives["all-gather"].wire_bytes == 8 * 128 * 2 * 3 / 4
    assert collectives["all-reduce"].wire_bytes == 3 * (8 * 128 * 4 * 2 * 1 / 2)
    assert collectives["reduce-scatter"].wire_bytes == 8 * 256 * 4 * 3 / 4
    assert collectives["collective-permute"].wire_bytes == 3 * 8 * 128 * 4


def test_hidden_is_what_has_work_between_its_start_and_its_end(collectives):
    assert collectives["all-gather"].hidden
    assert not collectives["collective-permute"].hidden
    assert not collectives["all-reduce"].hidden


def test_traffic_is_what_large_memory_gives_and_takes():
    """A slice of the stack in and out of the fusion, into the reduction; the gather's operand and its result."""
    layer, counter = 8 * 128 * 4, 4
    gather = (2 * 128 + 8 * 128) * 2
    assert HloModule(PROGRAM).hbm_bytes() == 3 * (3 * layer + counter) + gather


IN_PLACE = """\
HloModule jit_step, is_scheduled=true

%slice_of (stack: f32[3,8,128], number: s32[]) -> f32[8,128] {
  %stack = f32[3,8,128]{2,1,0:T(8,128)} parameter(0)
  %number = s32[]{:T(128)} parameter(1)
  %same = f32[3,8,128]{2,1,0:T(8,128)} bitcast(%stack)
  %slice = f32[1,8,128]{2,1,0:T(8,128)} dynamic-slice(%same, %number), dynamic_slice_sizes={1,8,128}
  ROOT %layer = f32[8,128]{1,0:T(8,128)} bitcast(%slice)
}

%changes (kept: f32[3,8,128], taken: f32[3,8,128], n: s32[], whole: f32[8,128]) -> (f32[3,8,128], f32[8,128]) {
  %kept = f32[3,8,128]{2,1,0:T(8,128)} parameter(0)
  %taken = f32[3,8,128]{2,1,0:T(8,128)} parameter(1)
  %n = s32[]{:T(128)} parameter(2)
  %whole = f32[8,128]{1,0:T(8,128)} parameter(3)
  %inner = f32[8,128]{1,0:T(8,128)} fusion(%taken, %n), kind=kLoop, calls=%slice_of
  %sum = f32[8,128]{1,0:T(8,128)} add(%inner, %whole)
  %row = f32[1,8,128]{2,1,0:T(8,128)} bitcast(%sum)
  %put = f32[3,8,128]{2,1,0:T(8,128)} dynamic-update-slice(%kept, %row, %n)
  %again = f32[3,8,128]{2,1,0:T(8,128)} bitcast(%put)
  ROOT %both = (f32[3,8,128]{2,1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}) tuple(%again, %sum)
}

ENTRY %main (a: f32[3,8,128], b: f32[3,8,128], i: s32[], w: f32[8,128]) -> f32[8,128] {
  %a = f32[3,8,128]{2,1,0:T(8,128)} parameter(0)
  %b = f32[3,8,128]{2,1,0:T(8,128)} parameter(1)
  %i = s32[]{:T(128)S(6)} parameter(2)
  %w = f32[8,128]{1,0:T(8,128)} parameter(3)
  %room = f32[8,128]{1,0:T(8,128)} custom-call(), custom_call_target="AllocateBuffer"
  %done = (f32[3,8,128]{2,1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}) fusion(%a, %b, %i, %w), kind=kLoop, calls=%changes
  ROOT %result = f32[8,128]{1,0:T(8,128)} get-tuple-element(%done), index=1
}
"""


def test_of_a_stack_only_the_slices_that_are_read_and_written_count():
    layer = 4 * 8 * 128
    read = layer + layer  # the slice that the inner fusion takes, and the whole of the last operand
    written = layer + layer  # the slice that is put into the first operand, and the second result
    assert HloModule(IN_PLACE).hbm_bytes() == read + written


RELAID = """\
HloModule jit_step, is_scheduled=true

%other_tiles (stack: f32[3,8,128]) -> f32[3,8,128] {
  %stack = f32[3,8,128]{2,1,0:T(16,128)} parameter(0)
  ROOT %copied = f32[3,8,128]{2,1,0:T(8,128)} copy(%stack)
}

%with_an_axis (whole: f32[8,128]) -> f32[1,8,128] {
  %whole = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %same = f32[1,8,128]{2,1,0:T(8,128)} bitcast(%whole)
}

%changes (taken: f32[3,8,128], n: s32[], whole.1: f32[8,128]) -> f32[3,8,128] {
  %taken = f32[3,8,128]{2,1,0:T(16,128)} parameter(0)
  %n = s32[]{:T(128)} parameter(1)
  %whole.1 = f32[8,128]{1,0:T(8,128)} parameter(2)
  %relaid = f32[3,8,128]{2,1,0:T(8,128)} fusion(%taken), kind=kLoop, calls=%other_tiles
  %slice = f32[1,8,128]{2,1,0:T(8,128)} dynamic-slice(%relaid, %n), dynamic_slice_sizes={1,8,128}
  %wide = f32[1,8,128]{2,1,0:T(8,128)} fusion(%whole.1), kind=kLoop, calls=%with_an_axis
  %sum = f32[1,8,128]{2,1,0:T(8,128)} add(%slice, %wide)
  %put = f32[3,8,128]{2,1,0:T(8,128)} dynamic-update-slice(%relaid, %sum, %n)
  ROOT %back = f32[3,8,128]{2,1,0:T(16,128)} copy(%put)
}

ENTRY %main (a: f32[3,8,128], i: s32[], w: f32[8,128]) -> f32[3,8,128] {
  %a = f32[3,8,128]{2,1,0:T(16,128)} parameter(0)
  %i = s32[]{:T(128)S(6)} parameter(1)
  %w = f32[8,128]{1,0:T(8,128)} parameter(2)
  ROOT %done = f32[3,8,128]{2,1,0:T(16,128)} fusion(%a, %i, %w), kind=kLoop, calls=%changes
}
"""


def test_a_change_of_layout_inside_a_fusion_is_no_traffic_and_hides_none():
    layer = 4 * 8 * 128
    assert HloModule(RELAID).hbm_bytes() == 3 * layer  # the slice in and out, and the whole of the last operand
