# Part of ../tpu.sh: what a project has rented, in all of its zones.
# shellcheck shell=bash

# list: prints a line for each slice of the project, with its age and cost by the list prices. There are three kinds: nodes of
# Cloud TPU, requests for nodes that wait in the queue, and hosts with TPUs of Compute Engine, as in node pools of GKE.
list() {
  local nodes='' requests='' machines='' note='' rows now
  printf -v now '%(%s)T' -1
  nodes=$(everywhere tpus tpu-vm list --zone=- "$(fields name acceleratorType state createTime queuedResource \
    schedulingConfig.spot schedulingConfig.preemptible schedulingConfig.reserved)") &&
    requests=$(everywhere tpus queued-resources list --zone=- "$(fields name state.state createTime \
      'tpu.nodeSpec[0].node.acceleratorType' provisioningModel)") || note=" of Cloud TPU"
  machines=$(everywhere instances list "$(fields name 'zone.basename()' 'machineType.basename()' status creationTimestamp \
    labels.goog-k8s-node-pool-name scheduling.provisioningModel)") || note+="${note:+, nor those} of Compute Engine and GKE"
  rows=$(list_tpus && list_machines)
  if [[ -n $rows ]]; then
    LC_ALL=C sort -t'|' -k1,2 <<<"$rows" | show_table
  elif [[ -z $note ]]; then
    echo "nothing is rented: no slice of Cloud TPU, and no machine with TPUs"
  fi
  [[ -z $note ]] || fail "gcloud does not tell the slices$note: they are missing above"
}

everywhere() { retry gcloud compute "$@" --quiet ${PROJECT:+--project="$PROJECT"}; }

list_tpus() {
  local path location type state created request spot preemptible reserved model usd_an_hour
  local -A models=() has_node=()
  while IFS='|' read -r path _ _ _ model; do models[${path:-none}]=$model; done <<<"$requests"
  while IFS='|' read -r path type state created request spot preemptible reserved; do
    [[ -n $path ]] || continue
    has_node[${request:-none}]=1 location=$(zone_of "$path")
    read_node_terms "$location" "${path##*/}" "$spot" "$preemptible" "$reserved"
    [[ ${models[${request:-none}]-} != FLEX[-_]START ]] || terms='flex-start'
    usd_an_hour='?'
    ! measure "$type" || ! list_price "$generation" "$terms" || usd_an_hour=$(usd "$chips * $price")
    case "$state" in
      CREATING | STARTING | STOPPING | STOPPED | PREEMPTED | TERMINATED | DELETING) usd_an_hour=0.00 ;;
    esac
    row "${path##*/}" "$location" "$type" "$terms" "$state" "$(seconds_since "$created")" "$usd_an_hour"
  done <<<"$nodes"
  while IFS='|' read -r path state created type _; do
    [[ -n $path && -z ${has_node[$path]-} ]] || continue
    location=$(zone_of "$path")
    read_node_terms "$location" "${path##*/}"
    row "${path##*/}" "$location" "$type" "$terms" "$state" "$(seconds_since "$created")" 0.00
  done <<<"$requests"
}

zone_of() {
  local rest=${1#*/locations/}
  echo "${rest%%/*}"
}

# The hosts of a slice are machines of the same node pool, one of which may be younger than the others.
list_machines() {
  local machine location type state created pool model key generation price terms chips seconds
  local -A count=() age=() hourly=() total=() type_of=() terms_of=() running=()
  while IFS='|' read -r machine location type state created pool model; do
    [[ $type =~ ^(ct4p|ct5lp|ct5p|ct6e|tpu7x)-.*-([1-9])t ]] || continue
    generation=${BASH_REMATCH[1]} chips=${BASH_REMATCH[2]} terms='on demand'
    case "$generation" in
      ct4p) generation=v4 ;;
      ct5lp) generation=v5e ;;
      ct5p) generation=v5p ;;
      ct6e) generation=v6e ;;
    esac
    case "$model" in
      SPOT) terms=spot ;;
      FLEX_START) terms='flex-start' ;;
      RESERVATION_BOUND) terms=reserved ;;
    esac
    key="${pool:-$machine}|$location" price='?'
    list_price "$generation" "$terms" || true
    count[$key]=$((${count[$key]-0} + 1)) type_of[$key]=$type terms_of[$key]=$terms
    seconds=$(seconds_since "$created")
    [[ $seconds != '?' ]] || price='?' seconds=0
    [[ -n ${age[$key]-} && ${age[$key]} -ge $seconds ]] || age[$key]=$seconds
    [[ $state == RUNNING ]] || continue
    running[$key]=$((${running[$key]-0} + 1))
    if [[ $price == '?' || ${hourly[$key]-} == '?' ]]; then
      hourly[$key]='?'
    else
      hourly[$key]=$(usd "${hourly[$key]-0} + $chips * $price")
      total[$key]=$(usd "${total[$key]-0} + $chips * $price * $seconds / 3600")
    fi
  done <<<"$machines"
  for key in "${!count[@]}"; do
    row "${key%|*}" "${key#*|}" "${type_of[$key]} x ${count[$key]}" "${terms_of[$key]}" \
      "${running[$key]-0} RUNNING" "${age[$key]}" "${hourly[$key]-0.00}" "${total[$key]-}"
  done
}

# row NAME ZONE TYPE TERMS STATE SECONDS USD_AN_HOUR [USD_SO_FAR]
row() {
  local so_far=${8-}
  case "$6:$7" in
    *'?'*) so_far='?' ;;
    *:0.00) so_far=- ;; # of a slice that was stopped it is not known for how long it cost
    *) [[ -n $so_far ]] || so_far=$(usd "$7 * $6 / 3600") ;;
  esac
  printf '%s|%s|%s|%s|%s|%s|%s|%s\n' "${@:1:7}" "$so_far"
}

# seconds_since TIME: until `now`, or ? where there is no time. TIME is as in RFC 3339. Days are counted in years that begin in
# March.
seconds_since() {
  local y m d offset=0
  [[ $1 =~ ^([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(Z|([-+])([0-9]{2}):([0-9]{2}))$ ]] ||
    { echo '?' && return; }
  y=${BASH_REMATCH[1]} m=10#${BASH_REMATCH[2]} d=10#${BASH_REMATCH[3]}
  [[ ${BASH_REMATCH[8]} == Z ]] || offset=${BASH_REMATCH[9]}$((10#${BASH_REMATCH[10]} * 3600 + 10#${BASH_REMATCH[11]} * 60))
  ((m > 2)) || ((y -= 1, m += 12))
  echo $((now - (365 * y + y / 4 - y / 100 + y / 400 + (153 * (m - 3) + 2) / 5 + d - 719469) * 86400 -
    10#${BASH_REMATCH[4]} * 3600 - 10#${BASH_REMATCH[5]} * 60 - 10#${BASH_REMATCH[6]} + offset))
}

# Prints rows below each other, ages in words, and the sum.
show_table() {
  LC_ALL=C awk -F'|' '
    function age(s) {
      if (s == "?") return s
      if (s < 3600) return int(s / 60) " min"
      if (s < 86400) return int(s / 3600) " h " int(s % 3600 / 60) " min"
      return int(s / 86400) " d " int(s % 86400 / 3600) " h"
    }
    BEGIN { split("NAME|ZONE|TYPE|TERMS|STATE|AGE|USD/HOUR|USD SO FAR", names); for (i in names) cell[0, i] = names[i] }
    {
      $6 = age($6)
      for (i = 1; i <= 8; i++) cell[NR, i] = $i
      sum += $7
      unknown += $7 == "?"
    }
    END {
      for (i = 1; i <= 8; i++) for (r = 0; r <= NR; r++) if (length(cell[r, i]) > width[i]) width[i] = length(cell[r, i])
      for (r = 0; r <= NR; r++) {
        line = ""
        for (i = 1; i <= 8; i++) line = line sprintf("%" (i < 6 ? "-" : "") width[i] "s  ", cell[r, i])
        sub(/ +$/, "", line)
        print line
      }
      printf "in all %s%.2f USD an hour (list prices)", unknown ? "at least " : "", sum
      if (unknown) printf "; ? stands for a price that is not known here"
      print ""
    }'
}
