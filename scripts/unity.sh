#!/usr/bin/env bash
# Prints one source that includes several others, so that their common includes are compiled once.
# Usage: unity.sh SOURCE...
#
# Each test gets its own namespace, since two tests may use one name for different things. All their
# includes come first, so inside the namespaces nothing is left to include. A test that declares
# names of Bedplate itself gets no namespace.
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
  # CppUTest's headers come last, after the tests' own headers: they make a macro of `new`.
  tests_headers() { sed -n 's/^#include "\(tests\/.*\.h\)"$/\1/p' "$@" | sort -u; }
  headers=()
  for _ in 1 2 3; do  # headers include headers
    mapfile -t headers < <(tests_headers "$@" "${headers[@]}")
  done
  { cat "$@"; grep -hE '^#include ("|<[a-z_]+>)' "${headers[@]}" /dev/null; } | awk '
    /^#include </ {print 1, $0; next} /^#include "CppUTest/ {print 4, $0; next}
    /^#include "tests.*h"/ {print 3, $0; next} /^#include .*h"/ {print 2, $0}' | sort -u | cut -c3-
fi
[ ${#others[@]} -eq 0 ] || printf '#include "%s"\n' "${others[@]}"
for i in "${!tests[@]}"; do
  printf 'namespace test_%d {\n#include "%s"\n}\n' "$i" "${tests[i]}"
done
