# The sources of each target, by folder: each folder is a part of one archive, except for the files
# named here. A source in a folder that no target has is not part of Bedplate.

in = $(foreach folder,$(1),$(sort $(wildcard $(folder)/*.cc)))

# malloc and new are in a separate archive: a program chooses them.
MALLOC_SOURCES := alloc/fork_calls.cc alloc/intercepting_heap.cc alloc/memory_calls.cc \
                  alloc/operator_new.cc
# The pool's heap, or a sanitizer's.
HEAP_SOURCES := $(addprefix alloc/,bad_pointer.cc child_heap.cc child_libc.cc confined_mimalloc.cc \
                  copied_heap.cc heap_walk.cc ordinary_memory.cc thread_heaps.cc)
ALLOC_SOURCES := $(filter-out $(MALLOC_SOURCES) alloc/interception.cc \
                   $(if $(SANITIZED),$(HEAP_SOURCES),alloc/sanitizer_heap.cc),$(call in,alloc))

# Sources for peers, which bring in libibverbs and librdmacm. A program without peers need not link
# them: programs request parts of the archive by name (flags.mk), and the runtime references the
# parts weakly.
PEERS_OF_PERF := apps/perf/perf_verbs_side.cc apps/perf/register_cost.cc
# The part of verbs that the counters need in every program.
VERBS_WORDS := transport/verbs/peer_state.cc
VERBS_LIBRARY_SOURCES := \
  $(filter-out $(VERBS_WORDS) $(if $(SANITIZED),transport/verbs/device/verbs_drivers.cc), \
    $(call in,transport/verbs $(addprefix transport/verbs/,device connect channel joined))) \
  $(call in,apps/peers) $(PEERS_OF_PERF)
INIT_LIBRARY_SOURCES := $(call in,apps/init)
# TLS, with OpenSSL, in the same way.
TLS_LIBRARY_SOURCES := $(call in,transport/tls apps/tls)
# Ports, with DPDK.
DPDK_LIBRARY_SOURCES := $(call in,$(addprefix transport/dpdk/,eal port net) apps/ports)
# For unit tests of services; no program of the tree links it.
TESTING_LIBRARY_SOURCES := $(call in,apps/testing)
POOL_SOURCES := $(call in,platform pinned_pool pinned_pool/join) $(ALLOC_SOURCES)
LIBRARY_SOURCES := $(POOL_SOURCES) \
                   $(call in,transport $(addprefix transport/,loop sockets files messages coroutines shm/queue \
                     shm/endpoint shm/membership single_copy self epoll uring udp nvme vfio)) $(VERBS_WORDS) \
                   $(call in,$(addprefix apps/,configuration counters services boot \
                     c_interface program program/top program/doctor program/plan program/counters \
                     http control)) \
                   $(filter-out $(PEERS_OF_PERF),$(call in,apps/perf))
# The join side of the C interface as a shared object, for programs in other languages.
# JOIN_C_SOURCES have the symbols that it exports.
JOIN_C_SOURCES := $(addprefix apps/c_interface/,bedplate_c.cc error_c.cc messages_c.cc) \
                  platform/version.cc
JOIN_SOURCES := $(filter-out $(JOIN_C_SOURCES),$(POOL_SOURCES)) transport/loop/doorbell.cc \
                $(call in,$(addprefix transport/,messages shm/queue shm/endpoint shm/membership \
                  single_copy))
# The pool's heap as a shared object, only for the benchmark.
BENCH_HEAP_SOURCES := $(filter-out alloc/confined_mimalloc.cc,$(POOL_SOURCES)) $(MALLOC_SOURCES) \
                      scripts/bench/preload_heap.cc
BLOCKD_SOURCES := $(call in,apps/blockd apps/blockd/stores)
KVD_SOURCES := $(call in,apps/kvd)
TSRELAY_SOURCES := $(call in,apps/tsrelay)
PROGRAM_SOURCES := apps/bedplate/main.cc
# A transport stream for tests and examples.
GENERATOR_SOURCES := apps/examples/ts_generator.cc apps/examples/test_picture.cc

TEST_SOURCES := tests/main.cc \
                $(sort $(wildcard tests/support/*.cc tests/*/*_test.cc tests/*/*/*_test.cc \
                             tests/*/*/*/*_test.cc))
# EAL leaves threads, and ThreadSanitizer lets no process with threads fork.
ifeq ($(MODE),tsan)
  TEST_SOURCES := $(filter-out tests/transport/dpdk/eal/% tests/transport/dpdk/port/%,$(TEST_SOURCES))
  # THREADED=1, set by make check: leaves out folders whose tests have one thread.
  ONE_THREAD := transport/dpdk/% apps/program/% apps/perf/% apps/http/%
  TEST_SOURCES := $(filter-out $(if $(THREADED),$(ONE_THREAD:%=tests/%)),$(TEST_SOURCES))
endif
STRAIN_SOURCES := $(wildcard tests/strain/*.cc)
TRAFFIC_SOURCES := $(wildcard tests/guest/*.cc)
PLACES_SOURCES := $(wildcard tests/places/*.cc)
POWER_SOURCES := $(wildcard tests/power/*.cc)
