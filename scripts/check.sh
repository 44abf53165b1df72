#!/usr/bin/env bash
# Builds and runs every test, and ends with one line: N passed, N failed, N skipped.
#
# scripts/check_steps.sh explains how a step runs, and how a failed step is treated. A step has the
# machine to itself, except steps marked `beside` or `build`: as many of them as there are lanes run
# at the same time. CHECK_ONLY=pattern runs the steps whose name matches. `make check-long` raises
# CHECK_MODES and the seconds and rounds below.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/check_steps.sh

jobs=-j$(nproc)
step setup scripts/setup.sh "${CHECK_PACKAGES:-check}"
step mimalloc scripts/mimalloc.sh build/mimalloc
step prometheus scripts/prometheus.sh build/prometheus
step layers scripts/layers.sh
step docs scripts/site.py
beside interface tests/install/interface_test.py
# asan has debug's assertions, except mimalloc's own; so only check-long runs debug.
for mode in ${CHECK_MODES:-release hardened asan tsan}; do
  # Only shipped builds are also run as programs.
  [ "$mode" = release ] && goals=(products tests python-package) || goals=(unit-tests)
  # This build counts executed lines.
  counted=
  [ "$mode" = asan ] && counted=1
  # ThreadSanitizer finds nothing in tests with one thread; check-long still runs them.
  threaded=
  [ "$mode" = tsan ] && threaded=${CHECK_THREADED-1}
  build "build-$mode" make --no-print-directory "$jobs" MODE="$mode" COUNTED=$counted \
    THREADED=$threaded DOZENS=1 \
    "${goals[@]}"
  # A hardened build shares everything except alloc/ with the release.
  groups=()
  [ "$mode" = hardened ] &&
    mapfile -t groups < <(sed -nE 's/^TEST_GROUP(_BASE)?\((\w+).*/-sg\n\2/p' tests/alloc/*_test.cc)
  tests=("build/$mode/bedplate-tests" "${groups[@]}")
  [ -n "$counted" ] && tests=(scripts/coverage.py unit)
  # Mostly one core's work: the next build runs in parallel.
  beside "unit-$mode" "${tests[@]}"
done
build build-fuzz make --no-print-directory "$jobs" fuzz-programs
# Counts lines that need more than unit tests, and lines that a sanitizer build leaves out. It is a
# separate build, and runs some of the tests above again.
with_coverage=${CHECK_COVERAGE:-}
[ -z "$with_coverage" ] ||
  build coverage-build make --no-print-directory "$jobs" MODE=coverage coverage-programs
# The longest first. None of these measures time: each waits for the event that it tests, so others
# may run in parallel, and a third lane keeps the processors busy.
lanes=3
# Tests that coverage-guest runs with other programs are not run twice.
beside guest /usr/bin/python3 tests/guest/guest_test.py ${with_coverage:+-over_soft_roce}
beside image-crash /usr/bin/python3 tests/guest/image_crash_test.py
beside system /usr/bin/python3 tests/system/run.py
# A long relay test of these MiB and seconds; `system` has short ones.
[ -z "${TSRELAY_MIB:-}${TSRELAY_SECONDS:-}" ] ||
  beside relay /usr/bin/python3 tests/system/run.py tsrelay_clients tsrelay_ports.a_hundred
# Every system call that it makes; `system` tests those that hurt most.
[ -z "${FORBID_ALL:-}" ] || beside forbidden /usr/bin/python3 tests/system/run.py forbidden_calls
beside image /usr/bin/python3 tests/guest/image_test.py
[ -z "$with_coverage" ] || beside coverage-guest scripts/coverage.py guest
beside model tests/model/run.sh
beside verbs /usr/bin/python3 tests/guest/verbs_test.py
beside vfio /usr/bin/python3 tests/guest/vfio_test.py
beside nvme /usr/bin/python3 tests/guest/nvme_test.py
beside polled /usr/bin/python3 tests/guest/polled_test.py
# Takes two minutes, and packages that the others do not need.
[ -z "${CEPH_STOP_SECONDS:-}" ] || beside ceph /usr/bin/python3 tests/guest/ceph_test.py
beside power /usr/bin/python3 tests/power/power_test.py
beside ports-vfio /usr/bin/python3 tests/guest/ports_vfio_test.py
for name in nbd kvd tsrelay tls http control net; do
  beside "fuzz-$name" make --no-print-directory FUZZ="$name" FUZZ_SECONDS="${FUZZ_SECONDS:-5}" \
    fuzz-run
done
# The system tests look at this machine's appliances; the following tests start some of their own.
wait
lanes=2
[ -n "$with_coverage" ] || beside coverage-unit scripts/coverage.py unit-report
# Mostly one core's work: all following steps have the other lane.
beside two-guests /usr/bin/python3 tests/guest/two_guests_test.py
[ -z "$with_coverage" ] || build coverage scripts/coverage.py here report
beside stress make --no-print-directory STRESS_SECONDS="${STRESS_SECONDS:-10}" stress-messages
beside hostile make --no-print-directory MODE=asan COUNTED=1 \
  HOSTILE_SECONDS="${HOSTILE_SECONDS:-10}" hostile-peer
beside install tests/install/run.py
beside link tests/link/run.py
# Debug archives are built by check-long alone; the unit tests of asan have their checks, too.
mistaken=(build/release)
[[ " ${CHECK_MODES:-} " == *" debug "* ]] && mistaken+=(build/debug)
beside mistakes tests/mistakes/run.py "${mistaken[@]}"
# Takes packages of 20 and 3 MB, and a minute each.
[ -z "${FOREIGN_TESTS:-}" ] || beside glibc tests/link/glibc.py
[ -z "${FOREIGN_TESTS:-}" ] || beside redis tests/link/redis.py
# Leaves each adjustment of mimalloc out once: four builds of the heap.
[ -z "${FOREIGN_TESTS:-}" ] || beside adjustments tests/alloc/without_adjustments.py
beside soak-exhaustion make --no-print-directory SOAK_ROUNDS="${SOAK_ROUNDS:-20}" soak-exhaustion
beside soak-demand make --no-print-directory SOAK_SECONDS="${SOAK_SECONDS:-10}" soak-demand
beside steps make --no-print-directory STEP_SECONDS="${STEP_SECONDS:-15}" step-senders
beside stops make --no-print-directory STOP_EVENTS="${STOP_EVENTS:-100}" stop-members
beside kill make --no-print-directory KILL_ROUNDS="${KILL_ROUNDS:-300}" kill-members
beside door make --no-print-directory DOOR_SECONDS="${DOOR_SECONDS:-10}" flood-door
beside sleepers make --no-print-directory SLEEPER_ROUNDS="${SLEEPER_ROUNDS:-5}" kill-owner-of-sleepers
# The only step that measures time runs last and alone.
step boot-time /usr/bin/python3 tests/guest/boot_time_test.py

finish_steps
