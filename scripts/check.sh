#!/usr/bin/env bash
# Builds and runs every test, and ends with one line: N passed, N failed, N skipped.
#
# Each step prints its own closing line of that form, or counts as one test by its exit code. What
# a step prints goes to build/check/NAME.log; only a failed one is shown.
# CHECK_ONLY=pattern runs the steps whose name matches; FUZZ_SECONDS (60) bounds the fuzzing,
# SOAK_SECONDS (60) the soak, STRESS_SECONDS (60) the stress of messages.
set -uo pipefail
cd "$(dirname "$0")/.."

mkdir -p build/check
passed=0 failed=0 skipped=0 failed_steps=()

step() { # NAME COMMAND...
  local name=$1 log=build/check/$1.log begin=$SECONDS status=0 line
  shift
  [[ $name =~ ${CHECK_ONLY:-.} ]] || return 0
  "$@" > "$log" 2>&1 || status=$?
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
  if [ -n "$line" ]; then
    read -r p _ f _ s _ <<< "$line"
    # A runner that died after its closing line has failed all the same.
    [ "$status" -ne 0 ] && [ "$f" -eq 0 ] && f=1
  else
    p=$((status == 0)) f=$((status != 0)) s=0
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  printf '%-28s %4d passed, %d failed, %d skipped  (%d s)\n' "$name" "$p" "$f" "$s" \
    $((SECONDS - begin))
  grep -h '^skipped: ' "$log" | sort | uniq -c | sed 's/^/    /'
  if [ "$f" -ne 0 ]; then
    failed_steps+=("$log")
    tail -n 60 "$log" | sed 's/^/    /'
  fi
}

jobs=-j$(nproc)
step setup scripts/setup.sh
step mimalloc scripts/mimalloc.sh build/mimalloc
step layers scripts/layers.sh
step model tests/model/run.sh
for mode in release hardened debug asan tsan; do
  step "build-$mode" make --no-print-directory "$jobs" MODE="$mode" products tests
  step "unit-$mode" "build/$mode/bedplate-tests"
done
step link tests/link/run.py
step soak-exhaustion make --no-print-directory SOAK_ROUNDS=20 soak-exhaustion
step soak-demand make --no-print-directory SOAK_SECONDS="${SOAK_SECONDS:-60}" soak-demand
step stress make --no-print-directory STRESS_SECONDS="${STRESS_SECONDS:-60}" stress-messages
step kill make --no-print-directory KILL_ROUNDS=300 kill-members
step hostile make --no-print-directory MODE=asan HOSTILE_SECONDS=60 hostile-peer
step fuzz-nbd make --no-print-directory fuzz-run
step system /usr/bin/python3 tests/system/run.py
step guest /usr/bin/python3 tests/guest/guest_test.py
step verbs /usr/bin/python3 tests/guest/verbs_test.py
step image /usr/bin/python3 tests/guest/image_test.py
step image-crash /usr/bin/python3 tests/guest/image_crash_test.py
step two-guests /usr/bin/python3 tests/guest/two_guests_test.py

[ ${#failed_steps[@]} -gt 0 ] && printf 'failed: %s\n' "${failed_steps[@]}"
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
