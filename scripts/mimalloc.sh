#!/usr/bin/env bash
# Fetches the source package of mimalloc into a directory and adjusts it. Usage: mimalloc.sh DIR
#
# Debian ships mimalloc as a shared object only; the runtime includes its sources in one of its own
# translation units (alloc/confined_mimalloc.cc). mimalloc_adjustments.sh has the adjustments.
# WITHOUT names one to leave out, for the test that shows its purpose.
set -euo pipefail

directory=${1:?usage: mimalloc.sh DIR}
# Sources adjusted by another version of this script are fetched again.
here=$(dirname "${BASH_SOURCE[0]}")
source "$here/mimalloc_adjustments.sh"
version="$(cat "${BASH_SOURCE[0]}" "$here/mimalloc_adjustments.sh" | cksum) ${WITHOUT:-}"
[ "$(cat "$directory/.adjusted" 2>/dev/null)" = "$version" ] && exit 0

fail() { echo "mimalloc.sh: $1" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here/debian_source.sh" mimalloc "$work/mimalloc"
source=$work/mimalloc

adjust() { # FILE SED-EXPRESSION: must change the file
  cp "$source/$1" "$work/before"
  sed -i "$2" "$source/$1"
  ! cmp -s "$source/$1" "$work/before" ||
    fail "$1 is not of the version that this project supports: nothing to adjust"
}
for name in "${ADJUSTMENTS[@]}"; do
  [ "$name" = "${WITHOUT:-}" ] || "$name"
done

rm -rf "$directory"
mkdir -p "$(dirname "$directory")"
cp -r "$source" "$directory"
echo "$version" > "$directory/.adjusted"
