#!/usr/bin/env bash
# Runs the unit tests that what has changed goes into. Usage: quick.sh BUILD
#
# Changed: what git says of the work tree, and of the commits since SINCE (the branch's upstream,
# where it has one). Which tests that goes into say the compiler's dependency files: a test whose
# source includes a header that has changed, or whose subject's source has (SUBJECT.cc and
# SUBJECT.h are tested by what includes SUBJECT.h).
set -euo pipefail
build=${1:?usage: quick.sh BUILD}
since=${SINCE:-$(git rev-parse --verify -q '@{upstream}' || echo HEAD)}

mapfile -t changed < <({ git diff --name-only "$since"; git ls-files -o --exclude-standard; } |
  grep -E '\.(cc|h|c)$' | sed -E 's/^((alloc|apps|pinned_pool|platform|transport)\/.*)\.(cc|c)$/\1.h/' |
  sort -u)
[ ${#changed[@]} -eq 0 ] && echo "quick: nothing has changed since $since" && exit 0

mapfile -t groups < <(
  for object in "$build"/tests/*/*_test.d; do
    grep -qFw "$(printf '%s\n' "${changed[@]}")" "$object" || continue
    test=${object#"$build"/}
    grep -ohE 'TEST_GROUP\w*\((\w+)' "${test%.d}.cc" | sed -E 's/.*\(//'
  done | sort -u)
[ ${#groups[@]} -eq 0 ] && echo "quick: no unit test sees what has changed" && exit 0

echo "quick: ${groups[*]}"
exec "$build/bedplate-tests" "${groups[@]/#/-sg}"
