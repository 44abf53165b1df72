#!/usr/bin/env bash
# Builds the yardsticks and runs the benchmarks. Usage: run.sh [nbd|boot] [OPTION...]
#
# Without a name it runs both; options (see `run.sh nbd --help`) need one. The environment variable
# BEDPLATE names the binary, by default build/release/bedplate. Tables go to stdout, every round
# goes to build/bench/nbd.json and boot.json.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build/bench
python=/usr/bin/python3
mkdir -p "$build"
for name in bare_server bare_zero; do
  ${CC:-gcc} -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -pthread \
    -o "$build/$name" "$here/$name.c"
done
export PYTHONDONTWRITEBYTECODE=1

case ${1-} in
  nbd | boot) exec "$python" "$here/$1_bench.py" "${@:2}" ;;
  '') "$python" "$here/boot_bench.py" && exec "$python" "$here/nbd_bench.py" ;;
  *) sed -n '2s/^# //p' "$0" >&2; exit 2 ;;
esac
