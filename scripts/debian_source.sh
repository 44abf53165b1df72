#!/usr/bin/env bash
# Fetches the source package of PACKAGE, from this machine's distribution, into the folder DIR.
# Usage: debian_source.sh [--packed] PACKAGE DIR       (--packed: the packed files, in DIR itself)
#
# Uses the machine's package sources, with source packages added; its own package lists stay
# unchanged.
set -euo pipefail

packed=
[ "${1:-}" = --packed ] && packed=--download-only && shift
package=${1:?usage: debian_source.sh [--packed] PACKAGE DIR}
directory=${2:?usage: debian_source.sh [--packed] PACKAGE DIR}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/source" "$work/parts"

for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [ -f "$list" ] || continue
  sed -n 's/^deb\(-src\)\?[[:space:]]/deb-src /p' "$list" > "$work/parts/$(basename "$list" .list).list"
done
for list in /etc/apt/sources.list.d/*.sources; do
  [ -f "$list" ] || continue
  sed 's/^Types:.*/Types: deb-src/' "$list" > "$work/parts/$(basename "$list")"
done

apt=(apt-get -qq -o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$work/parts"
     -o "Dir::State::lists=$work/lists" -o "APT::Sandbox::User=")
# A third-party entry without sources fails the update; only a missing package is an error.
"${apt[@]}" update > "$work/log" 2>&1 || true
(cd "$work/source" && "${apt[@]}" source $packed "$package") >> "$work/log" 2>&1 || {
  cat "$work/log" >&2
  echo "debian_source.sh: apt-get source $package failed" >&2
  exit 1
}
rm -rf "$directory"
mkdir -p "$(dirname "$directory")"
if [ -n "$packed" ]; then
  cp -r "$work/source" "$directory"
else
  cp -r "$(find "$work/source" -mindepth 1 -maxdepth 1 -type d)" "$directory"
fi
