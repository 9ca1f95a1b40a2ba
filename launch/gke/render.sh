# Part of ../gke.sh: a run as what Kubernetes reads.
# shellcheck shell=bash

# A word as a string of JSON.
quoted() {
  local word=${1//\\/\\\\} code hex character escape
  word=${word//\"/\\\"}
  if [[ $word == *[[:cntrl:]]* ]]; then
    for code in {1..31}; do
      printf -v hex '%02x' "$code"
      printf -v character '%b' "\\x$hex"
      escape="\\u00$hex"
      word=${word//"$character"/"$escape"}
    done
  fi
  printf '"%s"' "$word"
}

# op WHAT PATH VALUE: a line of a JSON patch, whose VALUE is JSON.
op() { printf '{"op": "%s", "path": "%s", "value": %s}' "$@"; }

# Writes jobset.json: jobset.yaml with this slice, image, and the words of this run.
render() {
  local job=/spec/replicatedJobs/0/template/spec pod container patch word words=()
  pod=$job/template/spec container=$job/template/spec/containers/0
  for word in "$@" --distributed; do words+=("$(quoted "${word//\$/\$\$}")"); done # Kubernetes fills in $(VARIABLE)
  patch=(
    "$(op replace /metadata/name "$(quoted "$name")")"
    "$(op add /metadata/annotations/bert-jax-run "$(quoted "$(fingerprint "$IMAGE" "$@")")")"
    "$(op replace "$job/parallelism" "$hosts")"
    "$(op replace "$job/completions" "$hosts")"
    "$(op replace "$pod/serviceAccountName" "$(quoted "$SERVICE_ACCOUNT")")"
    "$(op replace "$pod/nodeSelector" "$(node_selector)")"
    "$(op replace "$container/image" "$(quoted "$IMAGE")")"
    "$(op replace "$container/args" "[$(commas "${words[@]}")]")"
    "$(op replace "$container/envFrom/0/secretRef/name" "$(quoted "$name-secrets")")"
    "$(op replace "$container/resources/requests/google.com~1tpu" "$per_host")"
    "$(op replace "$container/resources/limits/google.com~1tpu" "$per_host")"
  )
  printf '[%s]' "$(commas "${patch[@]}")" >"$scratch/patch.json"
  kubectl patch --local --filename="$here/gke/jobset.yaml" --type=json --patch-file="$scratch/patch.json" \
    --output=json >"$scratch/jobset.json"
}

node_selector() {
  printf '{"cloud.google.com/gke-tpu-accelerator": "%s", "cloud.google.com/gke-tpu-topology": "%s", ' \
    "$accelerator" "${rented#*:}"
  printf '"cloud.google.com/gke-nodepool": "%s"}' "$name"
}

commas() {
  local IFS=,
  printf '%s' "$*"
}

# Writes secret.json. Secrets travel in a file of mode 600, since any user can read the words of a command.
pack_secrets() {
  local variable data=()
  for variable in $SECRETS; do
    [[ -z ${!variable-} ]] || data+=("\"$variable\": \"$(printf '%s' "${!variable}" | base64 | tr -d '\n')\"")
  done
  printf '{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "%s-secrets"}, "type": "Opaque", "data": {%s}}' \
    "$name" "$(commas "${data[@]}")" >"$scratch/secret.json"
}
