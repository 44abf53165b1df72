#!/usr/bin/env bash
# Puts Debian's stock kernel into FOLDER (build/kernel) without installing it on this machine:
#
#   kernel.sh [FOLDER]
#
#   vmlinuz    as in the package
#   vmlinux    the ELF file inside vmlinuz, decompressed; without KVM it boots in half the time
#   modules/   the package's lib/modules/RELEASE
#   package    the name of the package
#
# The package is the one that linux-image-amd64 depends on now. If FOLDER has another kernel, the
# script replaces it.
set -euo pipefail
folder=${1:-$(dirname "$0")/../../build/kernel}
mkdir -p "$folder"
cd "$folder"

package=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
[ -n "$package" ] || {
  echo "kernel: looking for the package: apt has no linux-image-amd64; run apt-get update" >&2
  exit 1
}
exec 9> lock  # several tests may run this at the same time
flock 9
[ "$(cat package 2>/dev/null)" = "$package" ] && exit 0

work=$(mktemp -d "$PWD/package.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get -qq download "$package") >&2
release=${package#linux-image-}
dpkg-deb --fsys-tarfile "$work"/*.deb |
  tar -x -C "$work" "./boot/vmlinuz-$release" "./lib/modules/$release"
vmlinuz="$work/boot/vmlinuz-$release"
# vmlinuz contains one XZ stream, and grep finds its magic number. Other data follow the stream, so
# xz writes the whole stream and then reports a failure.
offset=$(LC_ALL=C grep -abo -m 1 -P '\xFD7zXZ\x00' "$vmlinuz" | head -n 1 | cut -d : -f 1)
tail -c +$((offset + 1)) "$vmlinuz" | xz -dc --single-stream > "$work/vmlinux" 2>/dev/null || true
[ "$(head -c 4 "$work/vmlinux" | tail -c 3)" = ELF ] || {
  echo "kernel: unpacking $package: its vmlinuz has no XZ stream with an ELF file" >&2
  exit 1
}
rm -rf modules package
mv "$vmlinuz" vmlinuz
mv "$work/vmlinux" vmlinux
mv "$work/lib/modules/$release" modules
echo "$package" > package
