#!/usr/bin/env bash
# Unpacks Prometheus and promtool from the machine's distribution. Usage: prometheus.sh DIR
#
# The package is not installed: that would start a server listening on all addresses.
set -euo pipefail

directory=${1:?usage: prometheus.sh DIR}
[ -x "$directory/usr/bin/promtool" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get -qq -o APT::Sandbox::User= download prometheus) > "$work/log" 2>&1 || {
  cat "$work/log" >&2
  echo "prometheus.sh: the package prometheus could not be downloaded; if the package lists are" \
    "old: apt-get update" >&2
  exit 1
}
mkdir -p "$directory"
dpkg-deb -x "$work"/prometheus_*.deb "$directory"
