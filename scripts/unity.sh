#!/usr/bin/env bash
# Prints one source that includes several, so that what they include themselves is compiled once.
# Usage: unity.sh SOURCE...
#
# Each test goes into a namespace of its own: two may have the same name for different things. What
# they include comes before all of them, and by then there is nothing left to include in there. Not
# so one that declares something of Bedplate's.
set -euo pipefail

tests=()
for source; do
  if [[ $source == *_test.cc ]] && ! grep -q '^namespace bedplate' "$source"; then
    tests+=("$source")
  else
    printf '#include "%s"\n' "$source"
  fi
done
[ ${#tests[@]} -gt 0 ] || exit 0
cat "${tests[@]}" | grep '^#include ' | sort -u
for i in "${!tests[@]}"; do
  printf 'namespace test_%d {\n#include "%s"\n}\n' "$i" "${tests[i]}"
done
