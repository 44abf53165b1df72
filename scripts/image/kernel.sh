#!/usr/bin/env bash
# Puts Debian's stock kernel into FOLDER (build/kernel) without installing it on this machine:
#
#   kernel.sh [FOLDER]
#
#   vmlinuz    as the package has it
#   vmlinux    taken out of it (XZ): unpacked, it boots in half of the time where there is no KVM
#   modules/   its modules, as lib/modules/RELEASE has them
#   package    which package that is
#
# It is the one that linux-image-amd64 depends on today; a newer one replaces the older.
set -euo pipefail
folder=${1:-$(dirname "$0")/../../build/kernel}
mkdir -p "$folder"
cd "$folder"

package=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
[ -n "$package" ] || {
  echo "kernel: looking for it: apt knows no linux-image-amd64; run apt-get update" >&2
  exit 1
}
exec 9> lock  # tests may want it at the same time
flock 9
[ "$(cat package 2>/dev/null)" = "$package" ] && exit 0

work=$(mktemp -d "$PWD/package.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get -qq download "$package") >&2
release=${package#linux-image-}
dpkg-deb --fsys-tarfile "$work"/*.deb |
  tar -x -C "$work" "./boot/vmlinuz-$release" "./lib/modules/$release"
vmlinuz="$work/boot/vmlinuz-$release"
# The kernel's build leaves one XZ stream in the file, found by its magic; what follows it is not
# part of it, and xz says so with a failure after all of the stream was written.
offset=$(LC_ALL=C grep -abo -m 1 -P '\xFD7zXZ\x00' "$vmlinuz" | head -n 1 | cut -d : -f 1)
tail -c +$((offset + 1)) "$vmlinuz" | xz -dc --single-stream > "$work/vmlinux" 2>/dev/null || true
[ "$(head -c 4 "$work/vmlinux" | tail -c 3)" = ELF ] || {
  echo "kernel: unpacking $package: it is no XZ stream with an ELF file in it" >&2
  exit 1
}
rm -rf modules package
mv "$vmlinuz" vmlinuz
mv "$work/vmlinux" vmlinux
mv "$work/lib/modules/$release" modules
echo "$package" > package
