#!/usr/bin/env bash
# Checks every model with spin, and checks that each can fail.
#
#     tests/model/run.sh [--code] [MODEL...]      (all: tests/model/*.pml)
#
# --code only checks that the code quoted by each model exists.
#
# A model's head names the code that it models (`code: FILE: TEXT`; TEXT must occur in FILE, so that
# no model outlives its code), its checks (`check: SWITCHES`; by default one without switches) and
# the errors that must be found (`mutation: SWITCHES`: the model with one of its parts left out).
# Two or more spaces end the switches; the rest is a remark. The last line is `N passed, N failed, N
# skipped`.
set -uo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

report() { # OUTCOME TEXT
  [ "$1" = ok ] && passed=$((passed + 1)) || failed=$((failed + 1))
  printf '%-6s %s\n' "$1" "$2"
}

head_lines() { # KEY MODEL
  sed -n "s/^ \* $1: *//p" "$2"
}

# Searches all states. Returns 0: no error in any, 1: an error was found, 2: no answer.
search() { # GCC_OPTION MODEL SWITCH...
  local option=$1 model=$PWD/$2 switches=()
  shift 2
  for switch in "$@"; do switches+=("-D$switch"); done
  rm -rf "$work/search" && mkdir "$work/search" && cd "$work/search" || return 2
  local status=2
  if spin "${switches[@]}" -a "$model" &&
    gcc "$option" -w -DSAFETY -DCOLLAPSE -DMEMLIM=1500 -o pan pan.c
  then
    timeout 170 ./pan -m100000 -n
  fi > log 2>&1
  if grep -q 'errors: [1-9]' log; then
    status=1
  elif grep -q 'errors: 0$' log && ! grep -qE 'max search depth too small|not completed' log; then
    status=0
  fi
  cd - > /dev/null
  return "$status"
}

show() { # MODEL SWITCH...: prints the path to the error
  local model=$1
  shift
  tail -n 25 "$work/search/log"
  [ ! -f "$work/search/$(basename "$model").trail" ] ||
    spin "${@/#/-D}" -k "$work/search/$(basename "$model").trail" -p -g "$model" 2>&1 | tail -n 40
}

code_only=
[ "${1:-}" != --code ] || { code_only=yes; shift; }
models=("$@")
[ ${#models[@]} -gt 0 ] || models=(tests/model/*.pml)
for model in "${models[@]}"; do
  name=$(basename "$model" .pml) begin=$SECONDS

  gone=
  while IFS= read -r line; do
    [ -f "${line%%: *}" ] && grep -qF -- "${line#*: }" "${line%%: *}" || gone+="  $line"$'\n'
  done < <(head_lines code "$model")
  [ -z "$gone" ] && report ok "$name: its code is there" || {
    report FAILED "$name: this code has changed; look whether the model still stands for it:"
    printf '%s' "$gone"
  }
  [ -z "$code_only" ] || continue

  mapfile -t checks < <(head_lines check "$model")
  [ ${#checks[@]} -gt 0 ] || checks=("")
  for check in "${checks[@]}"; do
    read -ra switches <<< "${check%%  *}"
    if search -O2 "$model" "${switches[@]}"; then
      report ok "$name ${check%%  *}: $(grep -oE '[0-9]+ states, stored' "$work/search/log") ($((
        SECONDS - begin)) s)"
    else
      report FAILED "$name ${check%%  *}"
      show "$model" "${switches[@]}"
    fi
  done

  while IFS= read -r mutation; do
    read -ra switches <<< "${mutation%%  *}"
    # Most mistakes are found at once, so optimization would take longer than the search.
    search -O0 "$model" "${switches[@]}"
    case $? in
      1) report ok "$name ${mutation%%  *}: found" ;;
      0) report FAILED "$name ${mutation%%  *}: not found: the model cannot see this mistake" ;;
      *) report FAILED "$name ${mutation%%  *}: no answer"; tail -n 10 "$work/search/log" ;;
    esac
  done < <(head_lines mutation "$model")
done

printf '%d passed, %d failed, 0 skipped\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
