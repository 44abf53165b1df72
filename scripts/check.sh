#!/usr/bin/env bash
# Builds and runs every test, and ends with one line: N passed, N failed, N skipped.
#
# Each step prints its own closing line of that form, or counts as one test by its exit code. What
# a step prints goes to build/check/NAME.log; what failed in it is shown at the very end, where it
# is found without a search. A step has the machine for itself, but for those that say `beside` or
# `build`: as many of them as there are lanes run at the same time.
# CHECK_ONLY=pattern runs the steps whose name matches. CHECK_MODES and the seconds and rounds
# below: `make check-long` has more of them.
set -uo pipefail
cd "$(dirname "$0")/.."

mkdir -p build/check
lanes=2 steps=()

# Runs it, shows it in one piece, and leaves its three numbers in build/check/NAME.count.
run_step() { # NAME COMMAND...
  local name=$1 log=build/check/$1.log status=0 line p f s elapsed user system
  local TIMEFORMAT='%0R %0U %0S'
  shift
  { time "$@" > "$log" 2>&1 < /dev/null; } 2> "build/check/$name.time" || status=$?
  # The last line: a command that a signal ended is told before it.
  read -r elapsed user system < <(tail -n 1 "build/check/$name.time")
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
  if [ -n "$line" ]; then
    read -r p _ f _ s _ <<< "$line"
    # A runner that died after its closing line has failed all the same.
    [ "$status" -ne 0 ] && [ "$f" -eq 0 ] && f=1
  else
    p=$((status == 0)) f=$((status != 0)) s=0
  fi
  {
    flock 9
    printf '%-28s %4d passed, %d failed, %d skipped  (%d s, %d of a core)\n' "$name" "$p" "$f" \
      "$s" "$elapsed" $((user + system))
    sed -nE 's/^skipped  ?[^ ]+ \([0-9.]+ s\): /skipped: /; /^skipped: /p' "$log" | sort | uniq -c |
      sed 's/^/    /'
    sed -n 's/^covered: /    /p' "$log"
  } 9> build/check/lock
  echo "$p $f $s" > "build/check/$name.count"
}

# What the runners begin a failure with.
failure_words='Failure in|^FAIL|^failed  |^Traceback'
failure_words+='|WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:'

# The failures by these words, and the end: what crashed says no more.
show_failures() { # LOG
  echo "failed: $1"
  { grep -aE -m 8 -A 12 -e "$failure_words" "$1" | head -n 100 || true
    echo "the end of $1:"
    tail -n 30 "$1"; } | cut -c 1-300 | sed 's/^/    /'
}

# A line for each, for readers of the last lines alone.
name_failures() { # NAME
  local lines
  lines=$(grep -aoE "($failure_words).*" "build/check/$1.log" | head -n 20 | cut -c 1-200)
  sed "s/^/failed: $1: /" <<< "${lines:-no test is named, see build/check/$1.log}"
}

# In a process group of its own, so that it ends as a whole with this script.
beside() { # NAME COMMAND...
  [[ $1 =~ ${CHECK_ONLY:-.} ]] || return 0
  while [ "$(jobs -pr | wc -l)" -ge "$lanes" ]; do wait -n; done
  rm -f "build/check/$1.count"
  steps+=("$1")
  set -m
  run_step "$@" &
  set +m
}

step() { # NAME COMMAND...
  wait
  beside "$@"
  wait
}

# Beside what still runs, but what follows waits for it.
build() { # NAME COMMAND...
  [[ $1 =~ ${CHECK_ONLY:-.} ]] || return 0
  beside "$@"
  wait "$!"
}

end_steps() {
  local group
  for group in $(jobs -pr); do kill -TERM -- "-$group"; done
  wait
}
trap end_steps EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

jobs=-j$(nproc)
step setup scripts/setup.sh "${CHECK_PACKAGES:-check}"
step mimalloc scripts/mimalloc.sh build/mimalloc
step prometheus scripts/prometheus.sh build/prometheus
step layers scripts/layers.sh
step docs scripts/site.py
# What debug adds to asan, which has its assertions, is mimalloc's own: in check-long.
for mode in ${CHECK_MODES:-release hardened asan tsan}; do
  # Only what is shipped is run as programs, too.
  [ "$mode" = release ] && goals=(products tests) || goals=(unit-tests)
  # This one counts the lines that run.
  counted=
  [ "$mode" = asan ] && counted=1
  build "build-$mode" make --no-print-directory "$jobs" MODE="$mode" COUNTED=$counted "${goals[@]}"
  # Of a hardened build all but alloc/ is the release's.
  groups=()
  [ "$mode" = hardened ] &&
    mapfile -t groups < <(sed -nE 's/^TEST_GROUP(_BASE)?\((\w+).*/-sg\n\2/p' tests/alloc/*_test.cc)
  tests=("build/$mode/bedplate-tests" "${groups[@]}")
  [ -n "$counted" ] && tests=(scripts/coverage.py unit)
  # One core's work, mostly: the next build is beside it.
  beside "unit-$mode" "${tests[@]}"
done
# The lines of what needs more than unit tests, and of what a sanitizer's build leaves out: a build
# of its own, and tests of those above once more.
with_coverage=${CHECK_COVERAGE:-}
[ -z "$with_coverage" ] ||
  build coverage-build make --no-print-directory "$jobs" MODE=coverage coverage-programs
# The longest first. None of these measures: each waits for what it tests, whatever is beside it,
# and a third uses the processors meanwhile.
lanes=3
# What coverage-guest runs, with other programs, is not run twice.
beside guest /usr/bin/python3 tests/guest/guest_test.py ${with_coverage:+-over_soft_roce}
beside image-crash /usr/bin/python3 tests/guest/image_crash_test.py
beside system /usr/bin/python3 tests/system/run.py
# So many MiB, and streams for so long, through the relay; `system` has small ones.
[ -z "${TSRELAY_MIB:-}${TSRELAY_SECONDS:-}" ] ||
  beside relay /usr/bin/python3 tests/system/run.py tsrelay_clients tsrelay_ports.a_hundred
beside image /usr/bin/python3 tests/guest/image_test.py
[ -z "$with_coverage" ] || beside coverage-guest scripts/coverage.py guest
beside model tests/model/run.sh
beside verbs /usr/bin/python3 tests/guest/verbs_test.py
beside vfio /usr/bin/python3 tests/guest/vfio_test.py
beside nvme /usr/bin/python3 tests/guest/nvme_test.py
beside polled /usr/bin/python3 tests/guest/polled_test.py
# Two minutes, and packages that the others do without.
[ -z "${CEPH_STOP_SECONDS:-}" ] || beside ceph /usr/bin/python3 tests/guest/ceph_test.py
beside power /usr/bin/python3 tests/power/power_test.py
beside ports-vfio /usr/bin/python3 tests/guest/ports_vfio_test.py
beside fuzz-nbd make --no-print-directory FUZZ=nbd FUZZ_SECONDS="${FUZZ_SECONDS:-10}" fuzz-run
beside fuzz-kvd make --no-print-directory FUZZ=kvd FUZZ_SECONDS="${FUZZ_SECONDS:-10}" fuzz-run
beside fuzz-tsrelay make --no-print-directory FUZZ=tsrelay \
  FUZZ_SECONDS="${FUZZ_SECONDS:-10}" fuzz-run
beside fuzz-tls make --no-print-directory FUZZ=tls FUZZ_SECONDS="${FUZZ_SECONDS:-10}" fuzz-run
beside fuzz-http make --no-print-directory FUZZ=http FUZZ_SECONDS="${FUZZ_SECONDS:-10}" fuzz-run
beside fuzz-control make --no-print-directory FUZZ=control FUZZ_SECONDS="${FUZZ_SECONDS:-10}" \
  fuzz-run
beside fuzz-net make --no-print-directory FUZZ=net FUZZ_SECONDS="${FUZZ_SECONDS:-10}" fuzz-run
# The system's tests look at this machine's appliances; those that follow have some of their own.
wait
lanes=2
[ -n "$with_coverage" ] || beside coverage-unit scripts/coverage.py unit-report
# One core's work, mostly: all that follows has the other lane.
beside two-guests /usr/bin/python3 tests/guest/two_guests_test.py
[ -z "$with_coverage" ] || build coverage scripts/coverage.py here report
beside stress make --no-print-directory STRESS_SECONDS="${STRESS_SECONDS:-10}" stress-messages
beside hostile make --no-print-directory MODE=asan COUNTED=1 \
  HOSTILE_SECONDS="${HOSTILE_SECONDS:-10}" hostile-peer
beside install tests/install/run.py
beside link tests/link/run.py
beside soak-exhaustion make --no-print-directory SOAK_ROUNDS="${SOAK_ROUNDS:-20}" soak-exhaustion
beside soak-demand make --no-print-directory SOAK_SECONDS="${SOAK_SECONDS:-10}" soak-demand
beside steps make --no-print-directory STEP_SECONDS="${STEP_SECONDS:-15}" step-senders
beside stops make --no-print-directory STOP_EVENTS="${STOP_EVENTS:-100}" stop-members
beside kill make --no-print-directory KILL_ROUNDS="${KILL_ROUNDS:-300}" kill-members
beside door make --no-print-directory DOOR_SECONDS="${DOOR_SECONDS:-10}" flood-door
beside sleepers make --no-print-directory SLEEPER_ROUNDS="${SLEEPER_ROUNDS:-5}" kill-owner-of-sleepers
# What measures comes last and alone.
step boot-time /usr/bin/python3 tests/guest/boot_time_test.py

if [ ${#steps[@]} -eq 0 ]; then
  echo "check: CHECK_ONLY=$CHECK_ONLY matches no step; their names are in scripts/check.sh" \
    "(those of coverage: with CHECK_COVERAGE=1)" >&2
  exit 2
fi
passed=0 failed=0 skipped=0 names=
for name in "${steps[@]}"; do
  # One that ended without a count was killed.
  read -r p f s 2> /dev/null < "build/check/$name.count" || p=0 f=1 s=0
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  [ "$f" -eq 0 ] && continue
  show_failures "build/check/$name.log"
  names+=$(name_failures "$name")$'\n'
done
printf '%s' "$names"
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
