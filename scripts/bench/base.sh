#!/usr/bin/env bash
# Builds another commit of this repository in build/bench/base, for comparison (make bench
# BASE=COMMIT). Uses an existing build of the same commit.
# Usage: base.sh COMMIT
set -euo pipefail
cd "$(dirname "$0")/../.."

commit=$(git rev-parse --verify --quiet "$1^{commit}") || {
  echo "base.sh: looking for the commit $1: git has no such commit; see: git log" >&2
  exit 1
}
base=build/bench/base
[ "$(cat "$base/COMMIT" 2> /dev/null)" = "$commit" ] && exit
rm -rf "$base"
mkdir -p "$base"
git archive "$commit" | tar -x -C "$base"
echo "building $1 in $base"
# The sources of mimalloc fetched here are used for it as well.
make --no-print-directory -j"$(nproc)" -C "$base" MODE=release MIMALLOC="$PWD/build/mimalloc" \
  products
echo "$commit" > "$base/COMMIT"
