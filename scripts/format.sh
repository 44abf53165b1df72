#!/usr/bin/env bash
# Formats the sources by .clang-format, or checks that they are formatted. Usage: format.sh
# -i|--dry-run
set -euo pipefail
cd "$(dirname "$0")/.."
find platform pinned_pool alloc transport apps python tests scripts \
  \( -name '*.h' -o -name '*.cc' -o -name '*.c' \) -print0 |
  xargs -0 -n 100 -P "$(nproc)" clang-format-14 --style=file "$@"
