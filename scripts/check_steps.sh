# Runs the steps of scripts/check.sh, and judges those that fail. Sourced, not run.
#
#     step, beside or build, for each step
#     finish_steps: the tests that failed run once more, alone
#         they fail again          -> failed
#         they pass this time      -> flaky: printed with both outputs, but not failed
#         more than three of them, or one of the list tests/flaky.txt -> failed all the same
#     the last line: N passed, N failed, N skipped
#
# A step prints its own closing line of that form, or counts as one test by its exit code. Before it
# the step prints `failed: NAME` for each test that failed. With names in ONLY_TESTS, a line each, a
# runner runs just these; a step that names no test runs again as a whole. A step's output goes to
# $logs/NAME.log.

lanes=2 steps=()
declare -A commands=()
logs=${CHECK_LOGS:-build/check}
flaky_list=${CHECK_FLAKY:-tests/flaky.txt}
flaky_count_max=3
mkdir -p "$logs"

# Runs it, shows it in one piece, and leaves its three numbers in $logs/NAME.count.
run_step() { # NAME COMMAND...
  local name=$1 log=$logs/$1.log status=0 line p f s elapsed user system last=
  local TIMEFORMAT='%0R %0U %0S'
  shift
  [ -r "$logs/$name.time" ] && last=", last time $(tail -n 1 "$logs/$name.time" | cut -d' ' -f1) s"
  { time "$@" > "$log" 2>&1 < /dev/null; } 2> "$logs/$name.time" || status=$?
  # The last line: a command that a signal ended is told before it.
  read -r elapsed user system < <(tail -n 1 "$logs/$name.time")
  line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
  if [ -n "$line" ]; then
    read -r p _ f _ s _ <<< "$line"
    # A runner that died after its closing line has failed all the same.
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

# In a process group of its own, so that it ends as a whole with this script.
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

# One that ended without a count was killed.
count_of() { # NAME
  cat "$logs/$1.count" 2> /dev/null || echo 0 1 0
}

failed_tests() { # NAME: a line each
  sed -n 's/^failed: //p' "$logs/$1.log" 2> /dev/null | sort -u
}

# The words with which the runners begin a failure.
failure_words='Failure in|^FAIL|^failed  |^Traceback'
failure_words+='|WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:'

# The failures by these words, and the end of the log: a crashed program has no such words.
show_failures() { # HEADING LOG
  echo "$1: $2"
  { grep -aE -m 8 -A 12 -e "$failure_words" "$2" | head -n 100 || true
    echo "the end of $2:"
    tail -n 30 "$2"; } | cut -c 1-300 | sed 's/^/    /'
}

# A line for each, for readers of the last lines alone.
name_failures() { # NAME
  local lines
  lines=$(failed_tests "$1")
  [ -n "$lines" ] || lines=$(grep -aoE "($failure_words).*" "$logs/$1.log")
  lines=$(head -n 20 <<< "$lines" | cut -c 1-200)
  sed "s/^/failed: $1: /" <<< "${lines:-no test is named, see $logs/$1.log}"
}

# Runs a step again, alone; just its failed tests if it has named each. Returns true if they pass.
pass_again() { # NAME FAILED-COUNT
  local name=$1 p f s named
  named=$(failed_tests "$name")
  [ -n "$named" ] && [ "$(wc -l <<< "$named")" -eq "$2" ] || named=
  rm -f "$logs/$name-again.count"
  eval "ONLY_TESTS=\$named run_step \"\$name-again\" ${commands[$name]}"
  read -r p f s < <(count_of "$name-again")
  [ "$f" -eq 0 ] && [ "$p" -gt 0 ]
}

# The list has a line for each: STEP TEST: what was found out. STEP alone if it names no test.
is_listed() { # STEP TEST
  awk -v key="$1: " 'index($0, key) == 1 { found = 1 } END { exit !found }' "$flaky_list" 2> /dev/null
}

# Judges tests of a step that pass alone: flaky, counted as passed, or failed if flaky before.
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
  # So many fail for a reason, and the machine's time is better spent.
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
