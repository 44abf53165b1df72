#!/usr/bin/env bash
# Installs the Debian packages that are missing: what the build, the tests and the benchmarks need.
# As root, or through sudo; where neither works it prints the one command to run and stops.
set -euo pipefail

packages=(
  # build
  g++ make pkg-config dpkg-dev ca-certificates liburing-dev libtomlplusplus-dev nlohmann-json3-dev
  libibverbs-dev librdmacm-dev libnl-3-dev libnl-route-3-dev
  # tests: the framework, the fuzzer, real clients, and what looks on from outside
  libcpputest-dev clang libclang-rt-14-dev python3 libnbd-bin python3-libnbd qemu-utils fio
  strace procps spin
  # tests: the allocators that a program may bring
  libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0
  # tests in a virtual machine: its parts, and what unpacks the kernel
  qemu-system-x86 busybox-static cpio xz-utils binutils iproute2
  # images, and their tests: the stub that UEFI starts, the compressor, the firmware, what signs,
  # and what other people's modules are built with
  systemd-boot-efi zstd ovmf sbsigntool openssl linux-headers-amd64
  # benchmarks: the peers
  nbdkit util-linux libucx-dev openmpi-bin libopenmpi-dev libfabric-dev libboost-dev libdpdk-dev
  perftest ibverbs-providers
  # benchmarks: programs that allocate much
  perl-base lua5.4 sqlite3 jq
)

missing=()
installed=" $(dpkg-query -W -f '${Package}:${Status} ' "${packages[@]}" 2>/dev/null || true)"
for package in "${packages[@]}"; do
  [[ $installed == *" $package:install ok installed "* ]] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "setup: installing ${missing[*]}"
install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  echo "setup: installing packages needs root, and sudo asks for a password here; run:" >&2
  echo "  sudo apt-get update && sudo ${install[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The lists of a fresh machine are empty or old.
{ "${as_root[@]}" apt-get -q update && "${as_root[@]}" "${install[@]}"; } > "$log" 2>&1 || {
  cat "$log" >&2
  echo "setup: the packages above could not be installed" >&2
  exit 1
}
