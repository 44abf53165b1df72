#!/usr/bin/env bash
# Runs an appliance with the hugepages that its plan needs, and returns them afterwards.
# Usage: run.sh BEDPLATE [CONFIG]
set -euo pipefail

bedplate=${1:?usage: run.sh BEDPLATE [CONFIG]}
config=${2:-apps/demo.toml}

# Prints "PAGE_BYTES COUNT" for each hugepage size of the plan.
wanted=$("$bedplate" plan --json "$config" | python3 -c '
import collections, json, sys
pages = collections.Counter()
for segment in json.load(sys.stdin)["segments"]:
    pages[segment["page_bytes"]] += segment["bytes"] // segment["page_bytes"]
for page, count in pages.items():
    if page > 4096:
        print(page, count)')

restore=()
give_back() {
  for entry in "${restore[@]}"; do echo "${entry%%:*}" > "${entry#*:}" || true; done
}
trap give_back EXIT

while read -r page count; do
  [ -n "$page" ] || continue
  directory=/sys/kernel/mm/hugepages/hugepages-$((page / 1024))kB
  free=$(($(cat "$directory/free_hugepages") - $(cat "$directory/resv_hugepages")))
  [ "$free" -ge "$count" ] && continue
  before=$(cat "$directory/nr_hugepages")
  # Without the permission, the program's own preflight names the cure.
  if [ -w "$directory/nr_hugepages" ]; then
    restore+=("$before:$directory/nr_hugepages")
    echo $((before + count - free)) > "$directory/nr_hugepages"
  fi
done <<< "$wanted"

# Signals to this script are passed to the appliance: it drains, and then the pages are returned.
"$bedplate" run "$config" &
appliance=$!
trap 'kill -TERM "$appliance" 2>/dev/null' INT TERM
status=0
wait "$appliance" || status=$?
# A trapped signal ends the first wait early.
while kill -0 "$appliance" 2>/dev/null; do status=0; wait "$appliance" || status=$?; done
exit "$status"
