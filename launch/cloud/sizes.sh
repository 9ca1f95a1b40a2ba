# Part of ../tpu.sh and ../gke.sh: which slices there are. Google's sizes: https://cloud.google.com/tpu/docs/v4, .../v5e,
# .../v5p, .../v6e and .../tpu7x.
# shellcheck shell=bash

flat_sizes=' 1 4 8 16 32 64 128 256 '                      # chips of a slice of v5e or v6e
flat_shapes=' 1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16 '         # the same, as topologies
declare -A most_chips=([v4]=4096 [v5p]=6144 [tpu7x]=9216)  # of a slice in three dimensions

# measure TYPE: sets `generation`, `chips` and `hosts` of an accelerator type such as v5litepod-16. Where there is no such
# slice, it fails and says why in `trouble`. The names of v4 and v5p count TensorCores, two of which make a chip.
measure() {
  local type=${1/#v5e-/v5litepod-} number most
  generation='' chips=0 hosts=0 trouble=''
  [[ $type =~ ^(v4|v5p|v5litepod|v6e|tpu7x)-([1-9][0-9]{0,5})$ ]] || {
    trouble="expected v4-N, v5litepod-N, v5p-N or v6e-N, for example v5litepod-16; found '$1'"
    return 1
  }
  generation=${BASH_REMATCH[1]/v5litepod/v5e} number=${BASH_REMATCH[2]} chips=$number
  if [[ $generation == v5e || $generation == v6e ]]; then
    [[ $flat_sizes == *" $chips "* ]] || trouble="there are slices of 1, 4, 8, 16, 32, 64, 128 and 256 chips"
  else
    most=${most_chips[$generation]} chips=$((number / 2))
    ((number % 2 == 0)) && [[ " 4 8 16 32 " == *" $chips "* ]] || ((number % 128 == 0 && chips <= most)) ||
      trouble="the number counts TensorCores, two to a chip: there are 8, 16, 32, 64 and the multiples of 128 up to $((most * 2))"
  fi
  hosts=$(((chips + 3) / 4))
  [[ $generation != v5e && $generation != v6e ]] || ((chips > 8)) || hosts=1
  [[ -z $trouble ]]
}

# check_shape TOPOLOGY: dies where there is no slice such as v5e:4x4 or v5p:2x2x4.
check_shape() {
  local n='([1-9][0-9]{0,3})' a b c most
  if [[ $1 =~ ^(v5e|v6e):${n}x${n}$ ]]; then
    [[ $flat_shapes == *" ${1#*:} "* ]] || die "--topology $1: expected one of$flat_shapes"
  elif [[ $1 =~ ^(v4|v5p|tpu7x):${n}x${n}x${n}$ ]]; then
    a=${BASH_REMATCH[2]} b=${BASH_REMATCH[3]} c=${BASH_REMATCH[4]} most=${most_chips[${BASH_REMATCH[1]}]}
    [[ " 2x2x1 2x2x2 2x2x4 2x4x4 " == *" ${1#*:} "* ]] ||
      ((a % 4 == 0 && b % 4 == 0 && c % 4 == 0 && a <= b && b <= c && a * b * c <= most)) ||
      die "--topology $1: expected 2x2x1, 2x2x2, 2x2x4, 2x4x4, or AxBxC of multiples of 4, A <= B <= C, of at most $most chips"
  else
    die "--topology must be as for \`bert-jax plan\`: v5e:4x4, v6e:4x4, v4:2x2x4, v5p:2x2x4 or tpu7x:2x2x4; found '$1'"
  fi
}
