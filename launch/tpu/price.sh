# Part of ../tpu.sh: what a slice costs.
# shellcheck shell=bash

# Sets `chips`, `price` and `runtime` for a type such as v5litepod-16. The names of v4 and v5p count TensorCores, two of
# which make a chip. List prices of the US in USD per chip-hour: on demand, and spot in the dearest region, since spot
# prices change every month. Published at https://cloud.google.com/tpu/pricing and
# https://cloud.google.com/spot-vms/pricing; read on 2026-11-21 from SkyPilot's table of them,
# https://github.com/skypilot-org/skypilot-catalog (catalogs/v8/gcp/vms.csv).
# The runtimes: https://cloud.google.com/tpu/docs/runtimes
appraise() {
  local cores=1 on_demand spot
  [[ $1 =~ ^(v4|v5p|v5litepod|v6e)-([1-9][0-9]*)$ ]] ||
    die "--type must be v4-N, v5litepod-N, v5p-N or v6e-N, for example v5litepod-16; found '$1'"
  case "${BASH_REMATCH[1]}" in
    v4) cores=2 on_demand=3.22 spot=0.93 runtime=tpu-ubuntu2204-base ;;
    v5p) cores=2 on_demand=4.20 spot=1.68 runtime=v2-alpha-tpuv5 ;;
    v5litepod) on_demand=1.20 spot=0.60 runtime=v2-alpha-tpuv5-lite ;;
    v6e) on_demand=2.70 spot=1.35 runtime=v2-alpha-tpuv6e ;;
  esac
  chips=$((BASH_REMATCH[2] / cores))
  ((chips)) || die "--type $1 is less than a chip: the number counts TensorCores, two to a chip"
  runtime=${RUNTIME:-$runtime}
  price=$on_demand
  [[ " ${create_flags[*]} " != *" --spot "* ]] || price=$spot
  price=${PRICE:-$price}
  [[ $price =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "PRICE must be USD per chip-hour, for example 1.20; found '$price'"
}

# Says what the slice will cost, and asks, before it is asked for.
agree() {
  local answer whence='list price; PRICE=... changes it'
  [[ -z ${PRICE-} ]] || whence='by PRICE'
  say "$type in $ZONE: $(LC_ALL=C awk -v chips="$chips" -v price="$price" 'BEGIN {
    printf "%d chips at %s USD an hour = %.2f USD an hour, %.2f USD a day", chips, price, chips * price, chips * price * 24
  }'), from when it is ACTIVE until it is deleted ($whence)"
  [[ -z $yes ]] || return 0
  [[ -t 0 ]] || die "nobody is at the terminal to agree to the price; --yes agrees"
  read -r -p "Type yes to rent it: " answer
  [[ $answer == yes ]] || die "not rented"
}
