# Runs the steps of scripts/check.sh, and judges failed steps. Sourced, not run.
#
#     step, beside or build, for each step
#     finish_steps: the failed tests run once more, alone
#         they fail again          -> failed
#         they pass this time      -> flaky: printed with both outputs, but not failed
#         more than three of them, or one listed in tests/flaky.txt -> failed even so
#     the last line: N passed, N failed, N skipped
#
# A step prints its own closing line of that form; without it the step counts as one test, by its
# exit code. Before the closing line it prints `failed: NAME` for each failed test. If ONLY_TESTS
# has names, one per line, a runner runs only these; a step that names no test runs again as a
# whole. A step's output goes to $logs/NAME.log.

lanes=2 steps=()
declare -A commands=()
logs=${CHECK_LOGS:-build/check}
flaky_list=${CHECK_FLAKY:-tests/flaky.txt}
flaky_count_max=3
mkdir -p "$logs"

# Runs a step, prints its output as one block, and writes its three counts to $logs/NAME.count.
run_step() { # NAME COMMAND...
  local name=$1 log=$logs/$1.log status=0 line p f s elapsed user system last=
  local TIMEFORMAT='%0R %0U %0S'
  shift
  [ -r "$logs/$name.time" ] && last=", last time $(tail -n 1 "$logs/$name.time" | cut -d' ' -f1) s"
  { time "$@" > "$log" 2>&1 < /dev/null; } 2> "$logs/$name.time" || status=$?
  # The last line: bash reports a command killed by a signal before it.
  read -r elapsed user system < <(tail -n 1 "$logs/$name.time")
  line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
  if [ -n "$line" ]; then
    read -r p _ f _ s _ <<< "$line"
    # A runner that died after its closing line still counts as failed.
    [ "$status" -ne 0 ] && [ "$f" -eq 0 ] && f=1
  else
    p=$((status == 0)) f=$((status != 0)) s=0
  fi
  {
    flock 9
    printf '%-28s %4d passed, %d failed, %d skipped  (%d s%s, %d of a core)\n' "$name" "$p" "$f" \
      "$s" "$elapsed" "$last" $((user + system))
    sed -nE 's/^skipped  ?[^ ]+ \([0-9.]+ s\): /skipped: /; /^skipped: /p' "$log" | sort | uniq -c |
      sed 's/^/    /'
    sed -n 's/^covered: /    /p' "$log"
  } 9> "$logs/lock"
  echo "$p $f $s" > "$logs/$name.count"
}

# Starts a step in its own process group, so that the whole group ends with this script.
beside() { # NAME COMMAND...
  [[ $1 =~ ${CHECK_ONLY:-.} ]] || return 0
  while [ "$(jobs -pr | wc -l)" -ge "$lanes" ]; do wait -n; done
  rm -f "$logs/$1.count"
  steps+=("$1")
  commands[$1]=$(printf '%q ' "${@:2}")
  set -m
  run_step "$@" &
  set +m
}

step() { # NAME COMMAND...
  wait
  beside "$@"
  wait
}

# Runs in parallel with running steps; later steps wait for it.
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

# A step without a count was killed.
count_of() { # NAME
  cat "$logs/$1.count" 2> /dev/null || echo 0 1 0
}

failed_tests() { # one per line
  sed -n 's/^failed: //p' "$logs/$1.log" 2> /dev/null | sort -u
}

# Matches the beginning of a failure in the runners' output.
failure_words='Failure in|^FAIL|^failed  |^Traceback'
failure_words+='|WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:'

# Shows these failures, and the end of the log, since a crashed program prints no such line.
show_failures() { # HEADING LOG
  echo "$1: $2"
  { grep -aE -m 8 -A 12 -e "$failure_words" "$2" | head -n 100 || true
    echo "the end of $2:"
    tail -n 30 "$2"; } | cut -c 1-300 | sed 's/^/    /'
}

# One line per failure, for readers who see only the last lines.
name_failures() { # NAME
  local lines
  lines=$(failed_tests "$1")
  [ -n "$lines" ] || lines=$(grep -aoE "($failure_words).*" "$logs/$1.log")
  lines=$(head -n 20 <<< "$lines" | cut -c 1-200)
  sed "s/^/failed: $1: /" <<< "${lines:-no test is named, see $logs/$1.log}"
}

# Runs a step again, alone; only its failed tests if it named all. Returns true if they pass.
pass_again() { # NAME FAILED-COUNT
  local name=$1 p f s named
  named=$(failed_tests "$name")
  [ -n "$named" ] && [ "$(wc -l <<< "$named")" -eq "$2" ] || named=
  rm -f "$logs/$name-again.count"
  eval "ONLY_TESTS=\$named run_step \"\$name-again\" ${commands[$name]}"
  read -r p f s < <(count_of "$name-again")
  [ "$f" -eq 0 ] && [ "$p" -gt 0 ]
}

# Each line of the list is STEP TEST: the findings. If a step names no test, only STEP.
is_listed() { # STEP TEST
  awk -v key="$1: " 'index($0, key) == 1 { found = 1 } END { exit !found }' "$flaky_list" 2> /dev/null
}

# Judges a step's tests that pass alone: flaky and counted as passed, or failed if listed as flaky.
judge_flaky() { # NAME FAILED-COUNT
  local name=$1 line count=1
  local -a tests
  mapfile -t tests < <(failed_tests "$name")
  if [ ${#tests[@]} -ne "$2" ]; then
    tests=('') count=$2
  fi
  for line in "${tests[@]}"; do
    line=$name${line:+ $line}
    flaky_count=$((flaky_count + count))
    flaky+="flaky: $line: failed, and passed when it ran again, alone"$'\n'
    if is_listed "$line"; then
      names+="failed: $line: is flaky, and was so before: see $flaky_list"$'\n'
    else
      failed=$((failed - count)) passed=$((passed + count))
    fi
  done
}

finish_steps() {
  local name p f s passed=0 failed=0 skipped=0 names='' flaky='' flaky_count=0
  wait
  if [ ${#steps[@]} -eq 0 ]; then
    echo "check: CHECK_ONLY=${CHECK_ONLY:-} matches no step; their names are in scripts/check.sh" \
      "(those of coverage: with CHECK_COVERAGE=1)" >&2
    exit 2
  fi
  for name in "${steps[@]}"; do
    read -r p f s < <(count_of "$name")
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  done
  # So many failures have a common cause; rerunning them would waste time.
  local is_worth_it=$((failed <= flaky_count_max))
  for name in "${steps[@]}"; do
    read -r p f s < <(count_of "$name")
    [ "$f" -eq 0 ] && continue
    show_failures failed "$logs/$name.log"
    if [ "$is_worth_it" -eq 1 ] && pass_again "$name" "$f"; then
      show_failures "passed when it ran again, alone" "$logs/$name-again.log"
      judge_flaky "$name" "$f"
    else
      names+=$(name_failures "$name")$'\n'
    fi
  done
  printf '%s%s' "$flaky" "$names"
  [ -z "$flaky" ] || echo "flaky: $flaky_count; find out why, and add a line to $flaky_list"
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ]
}
