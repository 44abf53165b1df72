#!/usr/bin/env bash
# Prints one source that includes several, so that what they include themselves is compiled once.
# Usage: unity.sh SOURCE...
#
# Each test goes into a namespace of its own: two may have the same name for different things. What
# they include comes before all of them, and by then there is nothing left to include in there. Not
# so one that declares something of Bedplate's.
set -euo pipefail

tests=()
others=()
for source; do
  if [[ $source == *_test.cc ]] && ! grep -q '^namespace bedplate' "$source"; then
    tests+=("$source")
  else
    others+=("$source")
  fi
done
if [ ${#tests[@]} -gt 0 ]; then
  # CppUTest's last: it makes a macro of new.
  cat "${tests[@]}" | awk '/^#include </ {print 1, $0; next} /^#include "CppUTest/ {print 4, $0; next}
    /^#include "tests/ {print 3, $0; next} /^#include / {print 2, $0}' | sort -u | cut -c3-
fi
[ ${#others[@]} -eq 0 ] || printf '#include "%s"\n' "${others[@]}"
for i in "${!tests[@]}"; do
  printf 'namespace test_%d {\n#include "%s"\n}\n' "$i" "${tests[i]}"
done
