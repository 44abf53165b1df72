#!/usr/bin/env bash
# Runs the relay's demo with a generated stream until Ctrl-C.
# Usage: run_relay.sh BUILD [CONFIG]
set -euo pipefail

build=${1:?usage: run_relay.sh BUILD [CONFIG]}
config=${2:-apps/demo-relay.toml}

"$build/examples/tsgen" --to 127.0.0.1:5004 --rtp &
generator=$!
trap 'kill "$generator" 2>/dev/null || true' EXIT
cat << END
A moving picture comes in at 127.0.0.1:5004. From another terminal:

    $build/bedplate stats demo-relay --watch
    vlc udp://@:6004          ffplay udp://127.0.0.1:6006
    $build/examples/tsreader /run/bedplate/demo-relay.join reader news copy.ts

END
scripts/run.sh "$build/bedplate" "$config"
