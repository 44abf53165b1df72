#!/usr/bin/env bash
# Runs the unit tests that depend on changed files. Usage: quick.sh BUILD
#
# Changed files: git's for the work tree, and for the commits since SINCE (by default the branch's
# upstream, if any). The compiler's dependency files say which tests include a header. The tests of
# a source are those that include its header; a source without a header has all tests of its layer.
set -euo pipefail
shopt -s globstar
build=${1:?usage: quick.sh BUILD}
since=${SINCE:-$(git rev-parse --short '@{upstream}' 2> /dev/null || echo HEAD)}

mapfile -t changed < <({ git diff --name-only "$since"; git ls-files -o --exclude-standard; } |
  grep -E '\.(cc|h|c)$' | sort -u)
if [ ${#changed[@]} -eq 0 ]; then
  echo "quick: no C or C++ file has changed since $since: no unit test is run"
  exit 0
fi

tests=()
for file in "${changed[@]}"; do
  header=${file%.*}.h
  if [[ $file == tests/* ]] || [ -f "$header" ] || [ "$header" = "$file" ]; then
    [[ $file == tests/* ]] && header=$file
    mapfile -t -O ${#tests[@]} tests < <(grep -lwF "$header" "$build"/tests/**/*_test.d || true)
  else
    tests+=("$build/tests/${file%%/*}"/**/*_test.d)
  fi
done
groups=()
[ ${#tests[@]} -eq 0 ] || mapfile -t groups < <(
  printf '%s\n' "${tests[@]}" | sed -e "s#^$build/##" -e 's#\.d$#.cc#' | sort -u |
    xargs grep -ohE 'TEST_GROUP\w*\((\w+)' | sed 's/.*(//' | sort -u)
if [ ${#groups[@]} -eq 0 ]; then
  echo "quick: no unit test includes what has changed since $since"
  exit 0
fi

echo "quick: ${groups[*]}"
exec "$build/bedplate-tests" "${groups[@]/#/-sg}"
