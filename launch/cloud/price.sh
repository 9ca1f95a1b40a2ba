# Part of ../tpu.sh and ../gke.sh: what a slice costs.
# shellcheck shell=bash

# Sets `price` for a chip of v4, v5e, v5p or v6e. List prices of the US in USD per chip-hour: on demand, and spot in the
# dearest region, since spot prices change every month. Published at https://cloud.google.com/tpu/pricing and
# https://cloud.google.com/spot-vms/pricing; read on 2026-11-21 from SkyPilot's table of them,
# https://github.com/skypilot-org/skypilot-catalog (catalogs/v8/gcp/vms.csv).
appraise() {
  local on_demand spot
  case "$1" in
    v4) on_demand=3.22 spot=0.93 ;;
    v5p) on_demand=4.20 spot=1.68 ;;
    v5e) on_demand=1.20 spot=0.60 ;;
    v6e) on_demand=2.70 spot=1.35 ;;
  esac
  price=$on_demand
  [[ " ${create_flags[*]} " != *" --spot "* ]] || price=$spot
  price=${PRICE:-$price}
  [[ $price =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "PRICE must be USD per chip-hour, for example 1.20; found '$price'"
}

# agree SLICE STATE: says what the slice will cost from that state on, and asks, before it is asked for.
agree() {
  local whence='list price; PRICE=... changes it'
  [[ -z ${PRICE-} ]] || whence='by PRICE'
  say "$1 in $ZONE: $(LC_ALL=C awk -v chips="$chips" -v price="$price" 'BEGIN {
    printf "%d chips at %s USD an hour = %.2f USD an hour, %.2f USD a day", chips, price, chips * price, chips * price * 24
  }'), from when it is $2 until it is deleted ($whence)"
  ask "the price" "rent it" "not rented"
}
