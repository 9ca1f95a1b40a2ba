# Part of ../tpu.sh and ../gke.sh: what a slice costs.
# shellcheck shell=bash

# list_price GENERATION TERMS: sets `price` for a chip of v4, v5e, v5p or v6e; fails where none is known, as for flex-start and
# reservations. List prices of the US in USD per chip-hour: on demand, and spot in the dearest region, since spot prices change
# every month. Published at https://cloud.google.com/tpu/pricing and https://cloud.google.com/spot-vms/pricing; read on
# 2026-11-21 from SkyPilot's table of them, https://github.com/skypilot-org/skypilot-catalog (catalogs/v8/gcp/vms.csv).
list_price() {
  local on_demand spot
  case "$1" in
    v4) on_demand=3.22 spot=0.93 ;;
    v5p) on_demand=4.20 spot=1.68 ;;
    v5e) on_demand=1.20 spot=0.60 ;;
    v6e) on_demand=2.70 spot=1.35 ;;
    *) return 1 ;;
  esac
  case "$2" in
    'on demand') price=$on_demand ;;
    spot) price=$spot ;;
    *) return 1 ;;
  esac
}

# read_terms FLAG...: sets `terms` to what flags of gcloud ask for.
read_terms() {
  local word before=''
  terms='on demand'
  for word in "$@"; do
    [[ $before != --provisioning-model ]] || word=$before=$word
    case "${word,,}" in
      --spot | --provisioning-model=spot) terms=spot ;;
      --flex-start | --provisioning-model=flex[-_]start) terms='flex-start' ;;
      --reserved | --reservation | --reservation=* | --reservation-affinity=specific) terms=reserved ;;
    esac
    before=$word
  done
}

# appraise GENERATION TERMS: sets `price` and `whence`, where it comes from. Fails where there is neither a list price nor PRICE.
appraise() {
  price='' whence='list price; PRICE=... changes it'
  if [[ -n ${PRICE-} ]]; then
    price=$PRICE whence='by PRICE'
  elif ! list_price "$@"; then
    list_price "$1" 'on demand' || return
    whence="list price on demand; $2 has another, which PRICE=... sets"
  fi
}

check_price() {
  [[ ${PRICE-} =~ ^([0-9]+(\.[0-9]+)?)?$ ]] || die "PRICE must be USD per chip-hour, for example 1.20; found '$PRICE'"
}

# appraise_request: the same for `generation` and `create_flags`, and nothing is rented without a price.
appraise_request() {
  read_terms "${create_flags[@]}"
  appraise "$generation" "$terms" || die "no list price of $generation is known: set PRICE to its USD per chip-hour, from" \
    "https://cloud.google.com/tpu/pricing"
}

# usd EXPRESSION: of numbers, with two decimals.
usd() { LC_ALL=C awk "BEGIN { printf \"%.2f\", $1 }"; }

# agree SLICE STATE: says what the slice will cost from that state on, and asks, before it is asked for.
agree() {
  say "$1 in $ZONE: $chips chips at $price USD an hour = $(usd "$chips * $price") USD an hour," \
    "$(usd "$chips * $price * 24") USD a day, from when it is $2 until it is deleted ($whence)"
  ask "the price" "rent it" "not rented"
}

# remind GENERATION CHIPS TERMS ENVIRONMENT: says what a slice goes on costing, and the command that ends it.
remind() {
  local much=''
  ! appraise "$1" "$3" || much=" $(usd "$2 * $price") USD an hour ($whence)"
  say "the slice costs$much, with or without a run on it, until you type: $4 $0 delete $name"
}
