#!/usr/bin/env bash
# Installs missing Debian packages. Usage: setup.sh run|python|image|docs|check|check-long|bench
#
#   run    to build and run the program
#   python  in addition, to build the Python package, which `make install` installs
#   image  in addition, to build images: their parts, and QEMU
#   docs   to build the site of the documents
#   check  in addition, for the tests
#   check-long  in addition, for the longer tests
#   bench  in addition, for the benchmarks: their peers
#
# As root, or through sudo; if neither works it prints the one command to run and stops.
set -euo pipefail

packages=(
  g++ make patch pkg-config dpkg-dev ca-certificates python3 liburing-dev libtomlplusplus-dev
  nlohmann-json3-dev libibverbs-dev librdmacm-dev libnl-3-dev libnl-route-3-dev
  libssl-dev systemtap-sdt-dev
  # with the dependencies of its archives: libbpf-dev, libbsd-dev, libelf-dev, libmd-dev,
  # libnuma-dev, libxdp-dev
  libdpdk-dev
)
python=(libpython3-dev)
image=(
  # a virtual machine, and tools to unpack the kernel
  qemu-system-x86 busybox-static cpio xz-utils binutils
  # the stub that UEFI starts, the compressor, the firmware, and the signing tool
  systemd-boot-efi zstd ovmf sbsigntool openssl
)
docs=(mkdocs)
check=(
  # the framework, the fuzzer, real clients, and observers from outside
  libcpputest-dev clang clang-format-14 libclang-rt-14-dev llvm-14 libnbd-bin python3-libnbd python3-prometheus-client qemu-utils fio
  libmemcached-tools
  # senders, receivers and analysers of transport streams
  multicat ffmpeg gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good
  gstreamer1.0-plugins-bad vlc-bin vlc-plugin-base
  # checkers of the status page and of its source
  chromium tidy esbuild
  # an appliance in a container
  podman runc
  strace procps spin iproute2 iputils-ping
  # what the documents' commands use
  netcat-openbsd jq
  # a device that logs its writes, a file system on it, the kernel's client
  dmsetup e2fsprogs nbd-client
  # the checker of the Python package's types
  mypy
  # allocators that a program may link
  libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0
  # build systems of other programs, and the package checker
  cmake meson rustc lintian
  # the interface of the last commit
  git
  # headers to build foreign kernel modules
  linux-headers-amd64
)
check_long=(
  # a cluster: with dependencies 53 MB to download, 214 MB installed, about 20 s
  ceph-mon ceph-mgr ceph-osd ceph-common
  # 81 MB to download
  golang-go
)
bench=(
  # the peers
  nbdkit memcached multicat ethtool util-linux libucx-dev openmpi-bin libopenmpi-dev
  libfabric-dev libboost-dev dpdk-dev
  perftest ibverbs-providers
  # programs that allocate a lot
  perl-base lua5.4 sqlite3 jq
)
case ${1:-} in
  run) ;;
  python) packages+=("${python[@]}") ;;
  image) packages+=("${image[@]}") ;;
  docs) packages=("${docs[@]}") ;;
  check) packages+=("${python[@]}" "${image[@]}" "${docs[@]}" "${check[@]}") ;;
  check-long)
    packages+=("${python[@]}" "${image[@]}" "${docs[@]}" "${check[@]}" "${check_long[@]}")
    ;;
  bench) packages+=("${python[@]}" "${image[@]}" "${check[@]}" "${bench[@]}") ;;
  *) echo "usage: setup.sh run|python|image|docs|check|check-long|bench" >&2 && exit 2 ;;
esac

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
# On a fresh machine the package lists are empty or old.
{ "${as_root[@]}" apt-get -q update && "${as_root[@]}" "${install[@]}"; } > "$log" 2>&1 || {
  cat "$log" >&2
  echo "setup: the packages above could not be installed" >&2
  exit 1
}
