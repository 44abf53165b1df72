#!/usr/bin/env bash
# Boots an image in QEMU, with its console here. The guest's TCP port 10809 is this machine's, on
# 127.0.0.1; Ctrl-C switches it off.
#
#   scripts/image/run.sh IMAGE [QEMU-OPTION...]
#
# PORT (10809) is the port here, MEMORY_MIB (1024) the guest's memory. CONTROL=PATH gives the guest
# a second serial port, /dev/ttyS1, which is a Unix socket at PATH here, for this user alone: with
# serial = "/dev/ttyS1" in [control], `bedplate ctl --socket PATH` asks it (docs/control.md).
# UEFI=1 boots bedplate.efi from UEFI firmware, UEFI=secure only if it is signed by a key in VARS, a
# store of the firmware's variables (Debian's has a key that is for tests: docs/image.md); else
# APPEND is added to the kernel's command line, and KERNEL may be another one. ACCEL=kvm is faster
# where KVM works (the default, tcg, works everywhere).
set -euo pipefail
image=${1:?usage: run.sh IMAGE [QEMU-OPTION...]}
shift

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
  # Emulated on a busy machine, the timer is late now and then, and the kernel's check of it panics.
  # Emulated, the kernel's tests of its cryptography take a second.
  boot=(-kernel "${KERNEL:-$image/vmlinuz}" -initrd "$image/initramfs.cpio.zst"
    -append "$(cat "$image/cmdline") no_timer_check cryptomgr.notests ${APPEND:-}")
fi
control=()
if [ -n "${CONTROL:-}" ]; then
  umask 077
  control=(-chardev "socket,id=control,path=${CONTROL//,/,,},server=on,wait=off"
    -serial chardev:control)
fi
# Emulated, "rep stosb" goes byte by byte; without erms the kernel clears pages by eight.
exec qemu-system-x86_64 -accel "${ACCEL:-tcg}" -cpu max,-erms,-fsrm -smp 2 \
  -m "${MEMORY_MIB:-1024}M" -nodefaults -vga none -display none -no-reboot \
  -chardev stdio,id=console,signal=on -serial chardev:console "${control[@]}" \
  -netdev "user,id=net,hostfwd=tcp:127.0.0.1:${PORT:-10809}-10.0.2.15:10809" \
  -device virtio-net-pci,netdev=net,romfile= "${boot[@]}" "$@"
