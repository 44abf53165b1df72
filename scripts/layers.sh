#!/usr/bin/env bash
# Includes point down only: apps -> transport -> alloc -> pinned_pool -> platform; in pinned_pool/:
# join -> the pool; in apps/: services and commands -> boot. Files named *_datapath neither
# allocate, throw, log nor lock. No exceptions to either rule. Only alloc/ depends on hardened
# builds. Each file includes the headers that it uses, and the core archive none of rdma-core, DPDK
# or OpenSSL. Each source has its test. No class has more than 40 methods. C has what C++ has. Lines
# are short. Files named in documents exist, and pictures match their texts.
set -euo pipefail
cd "$(dirname "$0")/.."

bad=0
complain() { # WHAT MATCHES
  [ -z "$2" ] && return
  echo "layers: $1:" && echo "$2"
  bad=1
}

above=(apps transport alloc pinned_pool platform)
for ((i = 1; i < ${#above[@]}; ++i)); do
  upper=$(IFS='|'; echo "${above[*]:0:i}")
  complain "${above[i]} includes a layer above it" \
    "$(grep -rnE "#include \"($upper)/" "${above[i]}" || true)"
done

complain "the pool includes a header of other processes" \
  "$(grep -nE '#include "pinned_pool/join/' pinned_pool/*.h pinned_pool/*.cc || true)"

# joined, channel -> connect -> device; only joined knows joined processes and their shm.
complain "a part of verbs includes a part above it" "$(
  grep -rnE '#include "transport/(shm/|messages/joined_process\.h|verbs/joined/)' transport/verbs |
    grep -v '^transport/verbs/joined/'
  grep -rnE '#include "transport/verbs/(connect|channel)/' transport/verbs/device transport/verbs/*.*
  grep -rnE '#include "transport/verbs/channel/' transport/verbs/connect
  true)"

# A transport to peers uses the shared parts, which know no transport; a joining process knows shm.
complain "a transport to peers includes another, or a shared part includes a transport" "$(
  grep -rnE '#include "transport/(shm|verbs)/' transport/self
  grep -rnE '#include "transport/(self|verbs)/' transport/shm
  grep -rnE '#include "transport/(self|shm|verbs)/' transport/*.* transport/loop transport/sockets \
    transport/files transport/messages transport/coroutines |
    grep -v '^transport/messages/joined_process\.'
  true)"

# Services use the runtime, which knows none of them: a program lists the services that it has.
complain "the runtime names a service" "$(grep -rniE '\b(blockd|nbd|kvd|memcached|tsrelay)' --include='*.h' \
  --include='*.cc' --include='*.c' platform pinned_pool alloc transport apps |
  grep -vE '^apps/(blockd|kvd|tsrelay|bedplate)/|^apps/examples/(kvget|ts[a-z_]*|test_picture)\.' || true)"
complain "a part of apps/ includes a part above it" "$(
  grep -rnE '#include "apps/(blockd|kvd|tsrelay|http|control|bedplate|program|init|perf)/' \
    apps/configuration apps/counters apps/services apps/boot apps/peers apps/tls
  grep -rnE '#include "apps/(boot|peers|tls|ports|c_interface)/' \
    apps/configuration apps/counters apps/services
  grep -rnE '#include "apps/(peers|tls|ports|c_interface)/' apps/boot
  grep -rnE '#include "apps/(blockd|kvd|tsrelay|http|control|bedplate|init|perf)/' apps/c_interface
  grep -rnE '#include "apps/(blockd|kvd|tsrelay|bedplate|program|perf)/' apps/init
  grep -rnE '#include "apps/(blockd|kvd|tsrelay|bedplate|program|init|perf)/' apps/http apps/control
  grep -rnE '#include "apps/(kvd|tsrelay|program|bedplate|init|perf)/' apps/blockd
  grep -rnE '#include "apps/(blockd|tsrelay|program|bedplate|init|perf)/' apps/kvd
  grep -rnE '#include "apps/(blockd|kvd|program|bedplate|init|perf)/' apps/tsrelay
  true)"
complain "a program includes code for tests" "$(
  grep -rnE '#include "apps/testing/' platform pinned_pool alloc transport apps |
    grep -vE '^apps/(testing/|examples/[a-z_]*_test\.)' || true)"

datapath=$(find platform pinned_pool alloc transport apps -name '*_datapath.*')
[ -n "$datapath" ] || { echo "layers: no data path files found"; exit 1; }
# shellcheck disable=SC2086
complain "a data path allocates, throws, logs or locks" "$(grep -nE \
  '\b(malloc|calloc|make_unique|make_shared|throw|BP_LOG[_A-Z]*|log_line|log_error|std::mutex|push_back|new [A-Z][A-Za-z]*[({])' \
  $datapath || true)"

# A program with more rights than its caller ignores that user's environment.
complain "the environment is read outside platform/environment" "$(grep -rnE \
  '\b(secure_)?getenv\(|\benviron\b' --include='*.h' --include='*.cc' --include='*.c' \
  platform pinned_pool alloc transport apps | grep -v '^platform/environment\.' || true)"

# All other code is compiled once for release and hardened builds (scripts/mk/flags.mk).
complain "code outside alloc/ depends on a hardened build" "$(grep -rnE \
  '\b(BP_HARDENED|kKeepsLedger|enter_block|leave_block|heap_calls\.h|block_ledger\.h)\b' \
  --include='*.h' --include='*.cc' platform pinned_pool transport apps tests |
  grep -v '^tests/alloc/' || true)"
complain "a used header of the standard library is not included" "$(
  /usr/bin/python3 scripts/includes.py || echo "scripts/includes.py ended with an error")"
methods=$(/usr/bin/python3 scripts/classes.py 2>&1) ||
  complain "a class has too many methods" "$methods"
complain "C lacks what C++ has, or docs/services.md does not say how it is called there" "$(
  /usr/bin/python3 scripts/c_interface.py || echo "scripts/c_interface.py ended with an error")"
complain "libbedplate.a needs a header of rdma-core, DPDK or OpenSSL" "$(
  /usr/bin/python3 scripts/core_headers.py || echo "scripts/core_headers.py ended with an error")"
complain "a source has no test" "$(
  /usr/bin/python3 scripts/tested.py || echo "scripts/tested.py ended with an error")"
complain "the public headers differ from their list, or one has no interface" \
  "$(/usr/bin/python3 scripts/install/headers.py || true)"
complain "a line has more than 100 columns" "$(LC_ALL=C.UTF-8 grep -rnE '^.{101,}' \
  --include='*.h' --include='*.cc' --include='*.c' \
  platform pinned_pool alloc transport apps python tests || true)"
complain "code is not formatted as .clang-format says (make format)" "$(
  scripts/format.sh --dry-run 2>&1 | grep -vE '^ ' || true)"
complain "a document or a comment names a file that does not exist" "$(
  /usr/bin/python3 scripts/documents.py || echo "scripts/documents.py ended with an error")"
complain "sentences are hard to read (CONTRIBUTING.md)" "$(
  /usr/bin/python3 scripts/sentences.py || echo "scripts/sentences.py ended with an error")"
complain "the status page is not clean HTML, CSS and JavaScript (tidy, esbuild)" "$(
  tidy -quiet -errors apps/http/page/page.html 2>&1
  for part in page.css page.js; do
    esbuild --log-level=warning --outfile=/dev/null "apps/http/page/$part" 2>&1
  done
  true)"
complain "a picture does not match its text" "$(/usr/bin/python3 scripts/pictures.py --check 2>&1)"
exit "$bad"
