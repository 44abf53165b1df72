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
  cat "${tests[@]}" | sed -n 's/^#include </1 &/p; s/^#include "[a-su-z]/2 &/p; s/^#include "t[^e]/2 &/p
                     s/^#include "tests/3 &/p; s/^#include "CppUTest/4 &/p' | sort -u | cut -c3-
fi
[ ${#others[@]} -eq 0 ] || printf '#include "%s"\n' "${others[@]}"
for i in "${!tests[@]}"; do
  printf 'namespace test_%d {\n#include "%s"\n}\n' "$i" "${tests[i]}"
done
