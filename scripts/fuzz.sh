#!/usr/bin/env bash
# Runs a libFuzzer target on its corpus for SECONDS. Its findings stay in build/fuzz/.
# Usage: fuzz.sh TARGET CORPUS SECONDS
set -euo pipefail

target=${1:?usage: fuzz.sh TARGET CORPUS SECONDS}
corpus=${2:?}
seconds=${3:?}
# New inputs go to a separate folder: the corpus in the repository is changed only by hand.
found=build/fuzz/found-$(basename "$target")
mkdir -p "$found"
"$target" -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 -timeout=10 \
  -artifact_prefix="build/fuzz/crash-" "$found" "$corpus" 2>&1 | tail -n 20
