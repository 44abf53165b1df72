#!/usr/bin/env bash
# Builds and runs benchmarks.
# Usage: run.sh [nbd|store|nvme|kvd|relay|ports|boot|pool|alloc|message|fifo|verbs|trace|watch|
#               scale|report [OPTION...]]; run.sh quick|base
#
# Without a name it runs all, and writes one report: build/bench/report.html. `quick` runs a short
# version of each, in five minutes; `base` only the benchmarks that compare with another tree.
# Options (see `run.sh nbd --help`) need a name. The environment variable BEDPLATE names the binary,
# by default build/release/bedplate; alloc needs `make bench-heap`. BEDPLATE_OTHER names another
# tree, built like this one: nbd, message, kvd and relay then compare the two.
# Tables go to stdout, every round goes to build/bench/NAME.json.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build/bench
python=/usr/bin/python3
mkdir -p "$build"
for name in bare_server bare_zero bare_kv_server kvd_client nbd_client replay_client \
            datagram_probe bare_relay; do
  ${CC:-gcc} -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -pthread \
    -o "$build/$name" "$here/$name.c" -luring
done
for name in key_cost page_walk joined_memory nvme_requests trace_cost; do
  ${CXX:-g++} -std=c++20 -O2 -DNDEBUG -Wall -Wextra -Wconversion -Wshadow -Werror -I"$here/../.." \
    -o "$build/$name" "$here/$name.cc" "$here/../../build/release/libbedplate.a" -luring -lpthread
done
for name in stopwatch yield_after_post; do
  ${CC:-gcc} -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -fPIC -shared \
    -o "$build/$name.so" "$here/$name.c"
done
${CXX:-g++} -std=c++20 -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -fno-builtin-malloc \
  -pthread -Wl,-z,now -o "$build/alloc_workloads" "$here/alloc_workloads.cc"
# A typical user program, but with kvd's own objects.
release=$here/../../build/release
if [[ ${1-kvd} =~ ^(kvd|watch|quick|base)$ ]]; then
  ${CXX:-g++} -std=c++20 -O2 -DNDEBUG -Wall -Wextra -Wconversion -Wshadow -Werror -I"$here/../.." \
    -o "$build/kvd_messages" "$here/kvd_messages.cc" "$release"/apps/kvd/*.o \
    -Wl,-u,malloc -Wl,-u,_Znwm "$release"/libbedplate{-malloc,}.a -luring -lpthread
fi
# The contenders of message_bench.py. Uses DPDK's own flags, with its headers as system headers.
build_message_peer() { # NAME FLAG...
  local compile=("${CC:-gcc}")
  local source=$here/message_peers/$1.c
  [ -e "$source" ] || { compile=("${CXX:-g++}" -std=c++20); source+=c; }
  "${compile[@]}" -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -o "$build/message_$1" \
    "$source" "${@:2}"
}
if [[ ${1-message} =~ ^(message|quick|base)$ ]]; then
  for name in floor minimal_ring descriptor boost; do build_message_peer $name; done
  build_message_peer bedplate -DNDEBUG -I"$here/../.." \
    "$here/../../build/release/libbedplate.a" -luring -lpthread
  # The other tree's own program, as it matches that tree's headers.
  if [ -n "${BEDPLATE_OTHER-}" ]; then
    g++ -std=c++20 -O2 -DNDEBUG -I"$BEDPLATE_OTHER" -o "$build/message_other" \
      "$BEDPLATE_OTHER/scripts/bench/message_peers/bedplate.cc" \
      "$BEDPLATE_OTHER/build/release/libbedplate.a" -luring -lpthread -libverbs -lrdmacm
  fi
  # shellcheck disable=SC2046
  build_message_peer rte_ring $(pkg-config --cflags libdpdk | sed 's/-I/-isystem /g') -lrte_ring
  build_message_peer uct -luct -lucs
  build_message_peer ucp -lucp -lucs
  build_message_peer libfabric -lfabric
  # shellcheck disable=SC2046
  build_message_peer vader $(pkg-config --cflags --libs ompi-c)
fi
export PYTHONDONTWRITEBYTECODE=1

bench() { # NAME OPTION...
  "$python" "$here/$1_bench.py" "${@:2}"
}
# A report covers one run: removes results of earlier runs.
case ${1-} in '' | quick | base) rm -f "$build"/*.json ;; esac
case ${1-} in
  nbd | store | nvme | kvd | relay | ports | boot | pool | alloc | message | fifo | verbs | trace | \
    watch | scale)
    bench "$@" ;;
  report) ;;
  base)
    same='bedplate,other,other-again'
    bench message --rounds 15 --only latency,am_send,loan,rate16,lane --contenders "$same"
    bench nbd --rounds 9 --seconds 1 --servers "$same" --only 'unix.*depth'
    bench kvd --rounds 9 --seconds 1
    bench relay --rounds 9 ;;
  quick)
    bench pool --rounds 1
    bench trace --rounds 3
    bench boot --rounds 2
    bench alloc --quick --only 'mixed|larson|bursts'
    bench message --rounds 3 --only latency,am_send,loan,lane --contenders bedplate,uct,ucp,boost
    bench nbd --rounds 2 --seconds 1 --transports unix --only '4k.*connections 1$'
    bench store --rounds 1 --file-mib 512 --only 4k
    bench kvd --rounds 1 --seconds 0.5
    bench relay --rounds 1 --seconds 0.3
    bench ports --rounds 2 --seconds 0.5 ;;
  '') for name in fifo pool boot alloc message nbd store nvme kvd relay ports verbs trace watch \
               scale; do
    bench "$name"
  done ;;
  *) sed -n '3,4s/^# //p' "$0" >&2; exit 2 ;;
esac
case ${1-} in '' | quick | base | report) "$python" "$here/report.py" "${@:2}" ;; esac
