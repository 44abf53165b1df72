#!/usr/bin/env bash
# Puts Debian's stock kernel into build/guest/vmlinux without installing it on this machine.
#
# The package is the one that linux-image-amd64 depends on today; a newer one replaces the older.
# The kernel is taken out of vmlinuz (XZ): unpacked, it boots in half of the time.
set -euo pipefail
cd "$(dirname "$0")/../.."

package=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
[ -n "$package" ] || {
  echo "guest: looking for the kernel: apt knows no linux-image-amd64; run apt-get update" >&2
  exit 1
}
mkdir -p build/guest
[ "$(cat build/guest/package 2>/dev/null)" = "$package" ] && exit 0

work=$(mktemp -d build/guest/kernel.XXXXXX)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get -q download "$package") >&2
dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work" "./boot/vmlinuz-${package#linux-image-}"
vmlinuz=$(echo "$work"/boot/vmlinuz-*)
# The kernel's build leaves one XZ stream in the file, found by its magic; what follows it is not
# part of it, and xz says so with a failure after all of the stream was written.
offset=$(LC_ALL=C grep -abo -m 1 -P '\xFD7zXZ\x00' "$vmlinuz" | head -n 1 | cut -d : -f 1)
tail -c +$((offset + 1)) "$vmlinuz" | xz -dc --single-stream > "$work/vmlinux" 2>/dev/null || true
[ "$(head -c 4 "$work/vmlinux" | tail -c 3)" = ELF ] || {
  echo "guest: unpacking $package: its kernel is no XZ stream with an ELF file in it" >&2
  exit 1
}
mv "$work/vmlinux" build/guest/vmlinux
echo "$package" > build/guest/package
