#!/usr/bin/env bash
# Runs one command in a small virtual machine: Debian's kernel, an initramfs with busybox and the
# static binaries of build/release, no disk, no network. It provides features that this machine
# lacks: an older kernel, 1 GiB pages, several NUMA nodes.
#
#   tests/guest/run.sh [--memory MIB] [--nodes N] [--cpus N] [--append 'hugepages=128']
#                      [--seconds N] [--modules 'a.ko b.ko'] [--files 'PATH...']
#                      [--qemu 'OPTION...'] [--mode debug] -- COMMAND [ARGUMENT...]
#
# Prints the command's output (stdout and stderr together) and exits with its code; 124 if the time
# limit (120 s) is exceeded, 125 if the guest ended without a code, with the kernel's log on stderr.
# The modules are loaded before the command, in order; 126 if one cannot be loaded. A name without a
# slash is a module of the kernel, which is loaded after its dependencies. The files have the same
# paths in the guest, or the path in HOST=GUEST; dynamic programs bring their libraries.
# --mode takes the programs of build/MODE instead of build/release. The coverage counts of programs
# of build/coverage go into a separate folder in COVERAGE_RAW.
#
# The kernel's log comes over a serial port, the command's output and its exit code over virtio.
# QEMU's own exit code is useless: it is 0 after a kernel panic. Nothing is left behind: QEMU ends
# with this script, and all files of a run are in a directory that is removed.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

memory_mib=1024 nodes=1 cpus=1 append='' seconds=120 modules='' files='' qemu_options=''
mode=release
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --memory) memory_mib=$2 ;;
    --nodes) nodes=$2 ;;
    --cpus) cpus=$2 ;;
    --append) append=$2 ;;
    --seconds) seconds=$2 ;;
    --modules) modules=$2 ;;
    --files) files=$2 ;;
    --qemu) qemu_options=$2 ;;
    --mode) mode=$2 ;;
    *) echo "guest: reading the options: $1 is none; see the head of $0" >&2; exit 2 ;;
  esac
  shift 2
done
[ $# -ge 2 ] ||
  { echo "guest: reading the options: no '-- COMMAND'; see the head of $0" >&2; exit 2; }
shift

"$root/scripts/image/kernel.sh"
build=$root/build/$mode
work=$(mktemp -d) qemu=''
trap '[ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

mkdir -p "$work"/tree/{bin,dev,proc,sys,run,tmp,apps,docs,modules}
chmod 755 "$work/tree"  # mktemp's 0700 would become the mode of the guest's /
chmod 1777 "$work/tree/tmp"
cp /bin/busybox "$work/tree/bin/"
ln -s busybox "$work/tree/bin/sh"
for program in bedplate bedplate-tests; do
  [ -e "$build/$program" ] || continue
  strip -o "$work/tree/$program" "$build/$program"
done
cp "$root"/apps/*.toml "$work/tree/apps/"  # tests read them, and their documentation
cp "$root/docs/configuration.md" "$work/tree/docs/"
cp "$root/tests/guest/init" "$work/tree/init"
: > "$work/tree/modules/order"
names=virtio_console paths=''
for module in $modules; do
  case $module in */*) paths+=" $module" ;; *) names+=" $module" ;; esac
done
# shellcheck disable=SC2086
names=$("$root/scripts/image/modules.py" "$root/build/kernel/modules" $names)
for module in $names $paths; do
  [ -f "$module" ] || {
    echo "guest: taking the module $module: there is no such file" >&2
    exit 126
  }
  grep -qx "${module##*/}" "$work/tree/modules/order" && continue
  cp "$module" "$work/tree/modules/"
  echo "${module##*/}" >> "$work/tree/modules/order"
done
for file in $files; do
  from=${file%%=*} to=${file#*=}
  [ -f "$from" ] || { echo "guest: taking the file $from: there is no such file" >&2; exit 126; }
  install -D "$from" "$work/tree$to"
  for library in $(ldd "$from" 2>&1 | grep -o '/[^ :]* (0x' | cut -d' ' -f1); do
    install -D "$library" "$work/tree$library"
  done
done
for word in "$@"; do
  printf "'%s' " "${word//\'/\'\\\'\'}"
done > "$work/tree/command"
(cd "$work/tree" && find . | cpio --quiet -o -H newc -R 0:0) > "$work/initramfs"

numa=()
for ((node = 0; node < nodes; ++node)); do
  # With fewer cores than nodes, a node has only memory.
  share=''
  ((cpus < nodes)) || share=",cpus=$((node * cpus / nodes))-$(((node + 1) * cpus / nodes - 1))"
  numa+=(-object "memory-backend-ram,id=memory$node,size=$((memory_mib / nodes))M"
    -numa "node,nodeid=$node,memdev=memory$node$share")
done
touch "$work"/{log,output,status,counted}
# An emulated "rep stosb" writes byte by byte; without erms the kernel clears pages by eight bytes.
# On a busy machine the timer is sometimes late, and the kernel's check of it would panic.
# shellcheck disable=SC2086
timeout -k 5 "$seconds" qemu-system-x86_64 -accel tcg -cpu max,-erms,-fsrm -smp "$cpus" \
  -m "${memory_mib}M" "${numa[@]}" $qemu_options \
  -nodefaults -nic none -vga none -display none -no-reboot \
  -serial "file:$work/log" -device virtio-serial-pci \
  -chardev "file,id=output,path=$work/output" -device virtserialport,chardev=output,nr=1 \
  -chardev "file,id=status,path=$work/status" -device virtserialport,chardev=status,nr=2 \
  -chardev "file,id=counted,path=$work/counted" -device virtserialport,chardev=counted,nr=3 \
  -kernel "$root/build/kernel/vmlinux" -initrd "$work/initramfs" \
  -append "console=ttyS0 panic=-1 no_timer_check cryptomgr.notests $append" < /dev/null >&2 &
qemu=$!
ended=0
wait "$qemu" || ended=$?
qemu=''

cat "$work/output"
if [ -n "${COVERAGE_RAW:-}" ] && [ -s "$work/counted" ]; then
  raw=$(mktemp -d "$COVERAGE_RAW/guest.XXXXXX")
  tar -xf "$work/counted" -C "$raw"
fi
read -r status < "$work/status" || status=''
[ -n "$status" ] && exit "$status"
tail -n 40 "$work/log" >&2
[ "$ended" -eq 124 ] && { echo "guest: not done after $seconds s" >&2; exit 124; }
echo "guest: it ended without an exit code (QEMU's own: $ended)" >&2
exit 125
