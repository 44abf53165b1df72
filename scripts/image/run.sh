#!/usr/bin/env bash
# Boots an image in QEMU, with its console on this terminal; Ctrl-C powers it off.
#
#   scripts/image/run.sh IMAGE [--forward [udp:]HOST:GUEST]... [QEMU-OPTION...]
#
# Each --forward forwards port HOST of 127.0.0.1 to the guest's port GUEST, over TCP or UDP. Without
# one, or if PORT is set, port PORT (10809) goes to the guest's TCP port 10809. MEMORY_MIB (1024) is
# the guest's memory. CONTROL=PATH gives the guest a second serial port, /dev/ttyS1, connected to a
# local Unix socket at PATH, for this user alone. If [control] has serial = "/dev/ttyS1", `bedplate
# ctl --socket PATH` queries it (docs/control.md).
# UEFI=1 boots bedplate.efi from UEFI firmware, UEFI=secure only if it is signed by a key in VARS, a
# store of the firmware's variables (Debian's has a key for tests: docs/image.md). Without UEFI,
# APPEND is added to the kernel's command line, and KERNEL replaces the kernel. ACCEL=kvm is faster
# if KVM works (the default, tcg, works everywhere).
set -euo pipefail

refuse() { echo "image: $1" >&2 && exit 2; }
is_port() { [[ $1 =~ ^[0-9]{1,5}$ ]] && [ "$1" -ge 1 ] && [ "$1" -le 65535 ]; }

# Sets `rule` to QEMU's rule for a value of --forward.
read_forward() {
  local protocol=tcp ports=$1
  case $ports in udp:*) protocol=udp ports=${ports#udp:} ;; esac
  local host=${ports%%:*} guest=${ports#*:}
  if [[ $ports != *:* ]] || ! is_port "$host" || ! is_port "$guest"; then
    refuse "reading --forward $1: this is not HOST:GUEST; write two ports, such as 8080:80"
  fi
  rule=hostfwd=$protocol:127.0.0.1:$host-10.0.2.15:$guest
}

forwards='' words=()
while [ $# -gt 0 ]; do
  if [ "$1" = --forward ]; then
    read_forward "${2:-}"
    forwards+=,$rule
    shift $(($# > 1))
  else
    words+=("$1")
  fi
  shift
done
if [ -z "$forwards" ] || [ -n "${PORT:-}" ]; then
  read_forward "${PORT:-10809}:10809"
  forwards+=,$rule
fi
image=${words[0]:-}
[ -n "$image" ] || refuse "reading the command line: no image is named; name one behind run"

if [ -n "${UEFI:-}" ]; then
  code=OVMF_CODE_4M.fd vars=${VARS:-/usr/share/OVMF/OVMF_VARS_4M.fd} boot=()
  if [ "$UEFI" = secure ]; then
    # Only the firmware, in system management mode, may write the flash.
    code=OVMF_CODE_4M.secboot.fd vars=${VARS:-/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd}
    boot=(-machine "q35,smm=on" -global driver=cfi.pflash01,property=secure,value=on
      -global ICH9-LPC.disable_s3=1)
  fi
  boot+=(
    -drive "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/$code"
    -drive "if=pflash,format=raw,snapshot=on,file=$vars"
    -drive "if=virtio,format=raw,readonly=on,file=fat:$image/esp"
  )
else
  # Emulated on a busy machine, the timer is sometimes late, and the kernel's check of it panics.
  # The kernel's self-tests of its cryptography take a second when emulated.
  boot=(-kernel "${KERNEL:-$image/vmlinuz}" -initrd "$image/initramfs.cpio.zst"
    -append "$(cat "$image/cmdline") no_timer_check cryptomgr.notests ${APPEND:-}")
fi
control=()
if [ -n "${CONTROL:-}" ]; then
  umask 077
  control=(-chardev "socket,id=control,path=${CONTROL//,/,,},server=on,wait=off"
    -serial chardev:control)
fi
# Emulation runs "rep stosb" byte by byte; without erms the kernel clears pages by eight bytes.
exec qemu-system-x86_64 -accel "${ACCEL:-tcg}" -cpu max,-erms,-fsrm -smp 2 \
  -m "${MEMORY_MIB:-1024}M" -nodefaults -vga none -display none -no-reboot \
  -chardev stdio,id=console,signal=on -serial chardev:console "${control[@]}" \
  -netdev "user,id=net$forwards" \
  -device virtio-net-pci,netdev=net,romfile= "${boot[@]}" "${words[@]:1}"
