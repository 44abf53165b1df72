# The rules. Objects depend on the makefiles, too, so changed flags cause a rebuild.

BUILD_FILES := Makefile $(wildcard scripts/mk/*.mk)

# Removes a target whose recipe failed while writing it.
.DELETE_ON_ERROR:

# `products` and similar goals install and fetch nothing. Checked before any compilation.
FETCHED := $(MIMALLOC)/include/mimalloc.h
$(FETCHED):
	$(error $@ is missing: run `make all` once, which fetches it and what else is missing)

# The status page as a header.
GENERATED := build/generated/apps/http/status_page_parts.h
$(GENERATED): scripts/status_page.py $(wildcard apps/http/page/*)
	@mkdir -p $(@D)
	$(Q)$< $@

LIBRARY := $(BUILD)/libbedplate.a
MALLOC_LIBRARY := $(BUILD)/libbedplate-malloc.a
VERBS_LIBRARY := $(BUILD)/libbedplate-verbs.a
INIT_LIBRARY := $(BUILD)/libbedplate-init.a
TSRELAY_LIBRARY := $(BUILD)/libbedplate-tsrelay.a
DPDK_LIBRARY := $(BUILD)/libbedplate-dpdk.a
TLS_LIBRARY := $(BUILD)/libbedplate-tls.a
TESTING_LIBRARY := $(BUILD)/libbedplate-testing.a
LIBRARIES_ALL := $(VERBS_LIBRARY) $(INIT_LIBRARY) $(LIBRARY)
# The programs of this tree have all parts.
LINK_RUNTIME := $(VERBS_LINK) $(INIT_LINK) $(LIBRARIES_ALL)
# Parts for programs with ports, and for programs with TLS.
LINK_DPDK := $(DPDK_LINK) $(DPDK_LIBRARY)
LINK_TLS := $(TLS_LINK) $(TLS_LIBRARY)
PROGRAM := $(BUILD)/bedplate
TESTS := $(BUILD)/bedplate-tests
PEERS := $(BUILD)/c-peer $(BUILD)/cpp-peer $(BUILD)/crasher $(BUILD)/journal $(BUILD)/heap-owners
TRAFFIC := $(BUILD)/verbs-traffic
PLACES := $(BUILD)/places
PORT_ECHO := $(BUILD)/port-echo
BROKEN := $(BUILD)/power-broken
POWER := $(BUILD)/power-traffic $(BROKEN)
BLOCKD_OBJECTS := $(call objects,$(BLOCKD_SOURCES))
KVD_OBJECTS := $(call objects,$(KVD_SOURCES))

.PHONY: products tests unit-tests coverage-programs
products: $(PROGRAM) $(LIBRARIES_ALL) $(DPDK_LIBRARY) $(TLS_LIBRARY) $(TESTING_LIBRARY) \
          $(if $(SANITIZED),,$(MALLOC_LIBRARY)) examples
tests: unit-tests $(PEERS) $(TRAFFIC) $(PLACES) $(PORT_ECHO) $(POWER)
unit-tests: $(TESTS)
# The programs that scripts/coverage.py runs.
coverage-programs: $(PROGRAM) $(TESTS) $(PLACES) $(PORT_ECHO) $(addprefix $(BUILD)/,c-peer cpp-peer) \
                   $(addprefix $(BUILD)/examples/,edu kvget ping relay store tsgen tsreader)

define compile
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CXX  $@")
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) $(SHARED_FLAGS) $(if $(PRELUDE),-include $(PRELUDE)) -MMD -MP -c $< -o $@
endef

# A third of a small source's compile time is the standard library's headers, so they are
# precompiled. The result fits only the flags it was made with. Tests, which are optimized less,
# have their own; objects with special flags have none (flags.mk). A debug build has none, as
# editors take its commands for clang's; programs that represent users' programs have none either.
ifneq ($(MODE),debug)
PRELUDE := $(call build_of,prelude)/prelude.h
TESTS_PRELUDE := $(call build_of,tests/prelude)/tests/prelude.h
$(addsuffix /tests/%.o,$(sort $(BUILD) build/release)): PRELUDE := $(TESTS_PRELUDE)
PRELUDES := $(PRELUDE).gch $(TESTS_PRELUDE).gch
$(OWN_FLAGS) $(WITH_DPDK) $(addprefix $(BUILD)/,$(addsuffix /%.o,apps/examples examples bench \
  join)): PRELUDE :=
$(PRELUDES): %.gch: scripts/mk/prelude.h $(BUILD_FILES)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  PCH  $@")
	$(Q)cp $< $*
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -x c++-header $* -o $@
endif

$(BUILD)/%.o: %.cc $(BUILD_FILES) | $(FETCHED) $(GENERATED) $(PRELUDES)
	$(compile)
ifeq ($(MODE),hardened)
build/release/%.o: %.cc $(BUILD_FILES) | $(FETCHED) $(GENERATED) $(PRELUDES)
	$(compile)
endif

# A dozen sources compiled together take half of the time. This applies to sanitizer builds, which
# serve only their own tests, and with DOZENS=1 to the tests of any build. The sources of a release
# are compiled one by one: so a program gets only the objects that it needs from the archives, and
# one changed source is recompiled in a second.
#
# $(call compiled,NAME,SOURCES) and $(call compiled_tests,NAME,SOURCES): the objects of SOURCES; an
# object of a dozen has NAME in its name.
UNITY_SIZE := 12
ALONE := $(patsubst build/release/%.o,%.cc,$(patsubst $(BUILD)/%.o,%.cc,$(OWN_FLAGS) $(UNITY_TESTS))) \
         alloc/bad_pointer.cc transport/sockets/slow_sends.cc \
         tests/transport/sockets/slow_sends_test.cc \
         transport/verbs/device/verbs_drivers.cc \
         $(addsuffix /%,transport/dpdk apps/ports tests/transport/dpdk tests/apps/ports)
in_dozens = $(call unity,$(call build_of,$(firstword $(2)))/$(1),$(filter-out $(ALONE),$(2))) \
            $(call objects,$(filter $(ALONE),$(2)))
unity = $(foreach first,$(shell seq 1 $(UNITY_SIZE) $(words $(2))),$(call unity_object,$\
          $(1)_$(first),$(wordlist $(first),$(shell expr $(first) + $(UNITY_SIZE) - 1),$(2))))
unity_object = $(eval $(call unity_rule,$(1),$(2)))$(1).o
define unity_rule
$(1).cc: FORCE
	@mkdir -p $$(@D)
	$$(Q)scripts/unity.sh $(2) > $$@.new
	$$(Q)cmp -s $$@.new $$@ && rm $$@.new || mv $$@.new $$@
-include $(1).d
endef
# Runs each time, since the dozen of a source depends on all others. Writes only changes.
.PHONY: FORCE
FORCE:
# Two sources may have tests of the same name; an included source may have an unnamed namespace.
in_a_dozen = $(subst -Wshadow,-Wno-shadow $(if $(CLANG),,-Wno-subobject-linkage),$(compile))
$(BUILD)/%.o: $(BUILD)/%.cc $(BUILD_FILES) | $(FETCHED) $(GENERATED) $(PRELUDES)
	$(in_a_dozen)
ifeq ($(MODE),hardened)
build/release/%.o: build/release/%.cc $(BUILD_FILES) | $(FETCHED) $(GENERATED) $(PRELUDES)
	$(in_a_dozen)
endif
compiled = $(if $(CLANG),$(in_dozens),$(call objects,$(2)))
# The heap's tests are separate: a hardened build has only them of its own.
compiled_tests = $(if $(CLANG)$(DOZENS),\
  $(call in_dozens,$(1)_of_alloc,$(filter tests/alloc/%,$(2))) \
  $(call in_dozens,$(1),$(filter-out tests/alloc/%,$(2))),$(call objects,$(2)))

$(BUILD)/%.a:
	$(if $(V),,@echo "  AR   $@")
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(LIBRARY): $(call compiled,library,$(LIBRARY_SOURCES))
$(VERBS_LIBRARY): $(call compiled,verbs,$(VERBS_LIBRARY_SOURCES))
$(INIT_LIBRARY): $(call compiled,init,$(INIT_LIBRARY_SOURCES))
$(TSRELAY_LIBRARY): $(call compiled,tsrelay,$(TSRELAY_SOURCES))
$(DPDK_LIBRARY): $(call compiled,dpdk,$(DPDK_LIBRARY_SOURCES))
LIBCRYPTO := $(shell $(CXX) -print-file-name=libcrypto.a)
$(BUILD)/tls_left_out.c: scripts/mk/tls_left_out.sh $(LIBCRYPTO) $(BUILD_FILES)
	@mkdir -p $(@D)
	$(Q)$< $(LIBCRYPTO) > $@
$(BUILD)/tls_left_out.o: $(BUILD)/tls_left_out.c
	$(Q)$(CXX) -x c -O2 -c -o $@ $<

$(TLS_LIBRARY): $(call compiled,tls,$(TLS_LIBRARY_SOURCES))
$(TESTING_LIBRARY): $(call compiled,testing,$(TESTING_LIBRARY_SOURCES))
$(MALLOC_LIBRARY): $(call objects,$(MALLOC_SOURCES))

# The whole heap of the program and of the tests is in the pool, except under a sanitizer.
POOL_HEAP := $(if $(SANITIZED),,$(MALLOC_LIBRARY))
LINK_POOL_HEAP := $(if $(SANITIZED),,$(MALLOC_LINK) $(MALLOC_LIBRARY))

# A program of this tree: its link line after its objects, which needs all of these archives.
WITH_POOL = $(LINK_POOL_HEAP) $(LINK_RUNTIME)
WITH_TLS = $(LINK_TLS) $(WITH_POOL) $(TLS_LIBRARIES)
WITH_PORTS = $(LINK_POOL_HEAP) $(LINK_DPDK) $(LINK_RUNTIME) $(LINK_PORTS)
WITH_ALL = $(TSRELAY_LIBRARY) $(LINK_TLS) $(WITH_PORTS) $(TLS_LIBRARIES)
ARCHIVES_ALL := $(TLS_LEFT_OUT) $(POOL_HEAP) $(TSRELAY_LIBRARY) $(TLS_LIBRARY) $(DPDK_LIBRARY) \
                $(LIBRARIES_ALL)
# $(call link,FLAGS AND LIBRARIES)
define link
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LINK $@")
	$(Q)$(CXX) $(LDFLAGS) -o $@ $(filter %.o,$^) $(1) $(LINK_LIBRARIES)
endef

# The program again for tests, with stores that promise too much (tests/power/broken.cc).
$(BROKEN): private LDFLAGS += -Wl,--wrap=_ZN8bedplate4File5beginERNS_13FileOperationE \
                              -Wl,--wrap=_ZN8bedplate6NvmeIo5beginERNS_13NvmeOperationEm
$(BROKEN): $(BUILD)/tests/power/broken.o
$(PROGRAM) $(BROKEN): $(call objects,$(PROGRAM_SOURCES)) $(BLOCKD_OBJECTS) $(KVD_OBJECTS) \
                      $(ARCHIVES_ALL)
	$(call link,$(WITH_ALL))
# A client without any code of ours, except for the symbol that each of our headers refers to.
$(BUILD)/power-traffic: $(call objects,tests/power/traffic.cc tests/power/marks.cc platform/version.cc)
	$(if $(V),,@echo "  LINK $@")
	$(Q)$(CXX) $(LDFLAGS) -o $@ $^ -lpthread

# User programs, linked as docs/allocator.md says: with the pool's malloc. In addition a program of
# the tests that is linked the same way.
FIRST_SERVICE := $(addprefix $(BUILD)/examples/echo-,1 2 3 4 5 6 7 8 10 11)
EXAMPLES := $(addprefix $(BUILD)/examples/,ping ping-c relay remote_read store kvget edu \
              tsgen tsreader visits echo-test) $(FIRST_SERVICE)
.PHONY: examples
examples: $(EXAMPLES)

$(BUILD)/examples/ping: $(BUILD)/apps/examples/ping.o
$(BUILD)/examples/ping-c: $(BUILD)/apps/examples/ping_c.o
$(BUILD)/examples/remote_read: $(BUILD)/apps/examples/remote_read.o
$(BUILD)/examples/kvget: $(BUILD)/apps/examples/kvget.o
$(BUILD)/examples/tsgen: $(call objects,apps/examples/tsgen.cc $(GENERATOR_SOURCES)) $(TSRELAY_LIBRARY)
$(BUILD)/examples/tsreader: $(BUILD)/apps/examples/tsreader.o
$(BUILD)/examples/edu: $(BUILD)/apps/examples/edu.o
$(BUILD)/examples/visits: $(BUILD)/apps/examples/visits.o
$(BUILD)/examples/echo-test: $(BUILD)/apps/examples/echo_test.o $(TESTING_LIBRARY)
$(BUILD)/examples/relay: $(BUILD)/apps/examples/relay_c.o
$(BUILD)/examples/store: $(BUILD)/apps/examples/store_c.o
$(BUILD)/c-peer: $(BUILD)/tests/system/c_peer_c.o
$(BUILD)/cpp-peer: $(BUILD)/tests/system/cpp_peer.o
$(BUILD)/crasher: $(BUILD)/tests/system/crasher.o
$(BUILD)/heap-owners: $(BUILD)/tests/system/heap_owners.o
$(BUILD)/journal: $(BUILD)/tests/system/journal_c.o
$(TRAFFIC): $(call objects,$(TRAFFIC_SOURCES))
$(PLACES): $(call objects,$(PLACES_SOURCES))
$(EXAMPLES) $(PEERS) $(TRAFFIC) $(PLACES): $(POOL_HEAP) $(LIBRARIES_ALL)
	$(call link,$(filter %-tsrelay.a %-testing.a,$^) $(if $(filter %-tls.a,$^),$(WITH_TLS),$(WITH_POOL)))

# A test program that also has ports.
PORT_ECHO_SOURCES := $(addprefix tests/system/,port_echo.cc port_lender.cc) \
  tests/apps/ports/port_witness.cc
$(PORT_ECHO): $(call objects,$(PORT_ECHO_SOURCES)) $(POOL_HEAP) $(DPDK_LIBRARY) $(LIBRARIES_ALL)
	$(call link,$(WITH_PORTS))

# The steps of docs/first-service.md.
$(FIRST_SERVICE): $(BUILD)/examples/echo-%: $(BUILD)/examples/echo_%.o
$(addprefix $(BUILD)/examples/echo-,10 11): $(TLS_LEFT_OUT) $(TLS_LIBRARY)
FIRST_SERVICE_OBJECTS := $(FIRST_SERVICE:$(BUILD)/examples/echo-%=$(BUILD)/examples/echo_%.o)
$(FIRST_SERVICE_OBJECTS): %.o: %.cc
	$(compile)
$(FIRST_SERVICE_OBJECTS:.o=.cc): $(BUILD)/examples/echo_%.cc: docs/first-service.md \
    scripts/first_service.py $(BUILD_FILES)
	@mkdir -p $(@D)
	$(Q)scripts/first_service.py $* > $@ || { rm -f $@; exit 1; }

C_OBJECTS := $(addprefix $(BUILD)/,$(addsuffix _c.o,apps/examples/ping apps/examples/relay \
               apps/examples/store tests/system/journal tests/system/c_peer))
$(C_OBJECTS): $(BUILD)/%_c.o: %.c $(BUILD_FILES)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC   $@")
	$(Q)$(CC) -std=c99 -g -O2 -Wall -Wextra -Werror -Iapps/c_interface -MMD -MP -c $< -o $@

# CppUTest's archive defines operator new and delete; a copy with weak ones lets ours win.
$(BUILD)/libCppUTest.a: $(wildcard /usr/lib/*/libCppUTest.a) $(BUILD_FILES)
	@mkdir -p $(@D)
	$(Q)objcopy --wildcard --weaken-symbol='_Zn[wa]*' --weaken-symbol='_Zd[la]*' \
	  $(firstword $(wildcard /usr/lib/*/libCppUTest.a)) $@

# Routes functions that the data path must not call through traps (tests/support/datapath_law.cc),
# except under a sanitizer, which owns malloc and the locks.
LAW_NAMES := tests/support/datapath_law_names.inc
LAW_LINK := $(if $(SANITIZED),,$(patsubst %,-Wl$(comma)--wrap=%,\
              $(shell sed -n 's/^BP_TRAP(\(.*\))$$/\1/p' $(LAW_NAMES))))

$(TESTS): $(LAW_NAMES)
$(TESTS): $(call compiled_tests,tests/tests,$(TEST_SOURCES)) $(call objects,$(GENERATOR_SOURCES)) \
          $(BLOCKD_OBJECTS) $(KVD_OBJECTS) $(TESTING_LIBRARY) $(ARCHIVES_ALL) \
          $(BUILD)/libCppUTest.a
	$(call link,$(LAW_LINK) $(BUILD)/libCppUTest.a $(TESTING_LIBRARY) $(WITH_ALL))

# The pool's heap as a preloaded library for the benchmark: the archives' sources compiled again,
# with the flags usual for preloadable allocators. Not installed; programs link the archives.
BENCH_HEAP := $(BUILD)/bench/libbedplate-heap.so
BENCH_OBJECTS := $(BENCH_HEAP_SOURCES:%.cc=$(BUILD)/bench/%.o)
# Hidden except for replacements of libc functions: no internal symbol is resolved at run time.
$(filter-out $(MALLOC_SOURCES:%.cc=$(BUILD)/bench/%.o),$(BENCH_OBJECTS)): \
  CXXFLAGS += -fvisibility=hidden

.PHONY: bench-heap
bench-heap: $(BENCH_HEAP)

$(BUILD)/bench/%.o: SHARED_FLAGS := -fPIC -ftls-model=initial-exec
$(BUILD)/bench/%.o: %.cc $(BUILD_FILES) | $(FETCHED)
	$(compile)

$(BENCH_HEAP): $(BENCH_OBJECTS)
	$(if $(V),,@echo "  LINK $@")
	$(Q)$(CXX) -shared -Wl,-z,now -o $@ $^ -lpthread

# The Python package (docs/python.md): its files, the join side of bp_* as a shared object, and the
# module between both.
PYTHON_PACKAGE := $(BUILD)/python/bedplate
PYTHON_TEXTS := $(patsubst python/%,$(BUILD)/python/%,$(wildcard $(addprefix python/bedplate/,*.py \
                  *.pyi py.typed)))
JOIN_LIBRARY := $(PYTHON_PACKAGE)/libbedplate-join.so.0
PYTHON_MODULE := $(PYTHON_PACKAGE)/_joined.abi3.so
PYTHON_INCLUDE = $(shell /usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')

.PHONY: python-package
python-package: $(PYTHON_TEXTS) $(PYTHON_MODULE)

$(PYTHON_TEXTS): $(BUILD)/python/%: python/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

# The sources of the archives compiled again: an archive is for executables only. All is hidden but
# the C interface, of which the version script exports bp_* and the interface's number. Thread-local
# data is allocated when a thread first uses it (global-dynamic), since a library that is opened at
# run time finds little space in the block that each thread begins with. It stays loaded, because
# its memory does.
JOIN_ARCHIVE := $(BUILD)/join/libbedplate-join.a
JOIN_OBJECTS := $(JOIN_SOURCES:%.cc=$(BUILD)/join/%.o)
JOIN_C_OBJECTS := $(JOIN_C_SOURCES:%.cc=$(BUILD)/join/%.o)
$(BUILD)/join/%.o: SHARED_FLAGS := -fPIC -ftls-model=global-dynamic
$(JOIN_OBJECTS): SHARED_FLAGS += -fvisibility=hidden
$(BUILD)/join/%.o: %.cc $(BUILD_FILES) | $(FETCHED)
	$(compile)
$(JOIN_ARCHIVE): $(JOIN_OBJECTS)
$(JOIN_LIBRARY): $(JOIN_C_OBJECTS) $(JOIN_ARCHIVE) scripts/mk/join_symbols.map
	$(if $(CLANG),$(error the Python package is made of a release, hardened or debug build))
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LINK $@")
	$(Q)$(CXX) -shared -Wl,-soname,$(@F) -Wl,--version-script=scripts/mk/join_symbols.map \
	  -Wl,-z,now -Wl,-z,defs -Wl,-z,nodelete -Wl,--build-id -o $@ $(filter %.o %.a,$^) -lpthread
$(PYTHON_MODULE): $(wildcard python/bedplate/*.c python/bedplate/*.h) $(JOIN_LIBRARY) \
                  apps/c_interface/bedplate.h
	$(if $(V),,@echo "  CC   $@")
	$(Q)$(CC) -std=c11 -g -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -I$(PYTHON_INCLUDE) \
	  -Iapps/c_interface -shared -Wl,-z,now '-Wl,-rpath,$$ORIGIN' -Wl,--build-id -o $@ $(filter %.c,$^) \
	  $(JOIN_LIBRARY)

# The files that each object was made from, reported by the compiler.
-include $(shell find $(BUILD) $(if $(filter hardened,$(MODE)),build/release) -name '*.d' 2> /dev/null)

# The heap under load: a heap of 256 MiB in segment 0.
SOAK := $(BUILD)/heap-soak
SOAK_ROUNDS ?= 1000
SOAK_SECONDS ?= 1200
$(SOAK): $(call objects,tests/soak/heap_soak.cc) $(POOL_HEAP) $(LIBRARIES_ALL)
	$(call link,$(WITH_POOL))

.PHONY: soak-exhaustion soak-demand
soak-exhaustion: $(SOAK)
	$(Q)BEDPLATE_BOOT_BYTES="256 MiB" $(SOAK) exhaustion $(SOAK_ROUNDS)
soak-demand: $(SOAK)
	$(Q)BEDPLATE_BOOT_BYTES="256 MiB" $(SOAK) demand $(SOAK_SECONDS)

# Stress test of messages between processes.
STRAIN := $(BUILD)/message-strain
STRESS_SECONDS ?= 60
KILL_ROUNDS ?= 1000
HOSTILE_SECONDS ?= 60
STEP_SECONDS ?= 60
STOP_EVENTS ?= 1000
SLEEPER_ROUNDS ?= 10
DOOR_SECONDS ?= 60
$(STRAIN): $(call objects,$(STRAIN_SOURCES)) $(POOL_HEAP) $(LIBRARIES_ALL)
	$(call link,$(WITH_POOL))

.PHONY: stress-messages kill-members hostile-peer step-senders stop-members \
        kill-owner-of-sleepers flood-door
stress-messages: $(STRAIN)
	$(Q)$(STRAIN) stress $(STRESS_SECONDS)
kill-members: $(STRAIN)
	$(Q)$(STRAIN) kill $(KILL_ROUNDS)
step-senders: $(STRAIN)
	$(Q)$(STRAIN) step $(STEP_SECONDS)
stop-members: $(STRAIN)
	$(Q)$(STRAIN) stop $(STOP_EVENTS)
kill-owner-of-sleepers: $(STRAIN)
	$(Q)$(STRAIN) sleepers $(SLEEPER_ROUNDS)
flood-door: $(STRAIN)
	$(Q)$(STRAIN) door $(DOOR_SECONDS)
hostile-peer: $(STRAIN)
	$(Q)$(STRAIN) hostile $(HOSTILE_SECONDS)
	$(Q)$(if $(MUTATIONS),$(STRAIN) mutations $(MUTATIONS))

.PHONY: fuzz-run
FUZZ_SECONDS ?= 60
# The code that the fuzzer instruments: one archive, from which each target links its part, with the
# invariants checked, as in a debug build.
FUZZED_SOURCES := $(filter platform/%,$(LIBRARY_SOURCES)) pinned_pool/audit.cc \
  $(addprefix apps/blockd/,nbd_handshake_output.cc nbd_negotiation.cc) alloc/keyed_cache_datapath.cc \
  $(addprefix transport/loop/,awake_time.cc doorbell.cc event_loop.cc loop_rounds.cc \
    loop_sources.cc loop_work.cc rate_limit_datapath.cc shard_plan.cc stall_watch.cc \
    time_limit.cc timer_queue.cc) \
  $(addprefix transport/sockets/,datagram_address.cc ip_address.cc later_answers_datapath.cc \
    stream_input_datapath.cc stream_replies_datapath.cc stream_server_counters.cc \
    stream_session_datapath.cc) \
  $(addprefix transport/tls/,tls_credentials.cc tls_library.cc tls_session.cc) \
  $(filter transport/dpdk/net/%,$(DPDK_LIBRARY_SOURCES)) \
  $(addprefix apps/counters/,counter_alerts.cc counter_sums.cc counters_snapshot.cc json_text.cc \
    stats_json.cc) \
  apps/services/control_methods.cc \
  $(addprefix apps/control/,control_request.cc control_session.cc) \
  $(addprefix apps/http/,event_text.cc http_request.cc http_session.cc lines.cc metrics_text.cc \
    status_page.cc) \
  $(addprefix apps/kvd/,$(addsuffix _datapath.cc,far_turn items key_owner meta_commands \
    meta_request operation request session session_answers session_limits session_waves stats \
    wave)) \
  $(addprefix apps/tsrelay/,$(addsuffix _datapath.cc,fec_receiver fec_sender leg_merge pacer psi \
    rtp ts_inspector ts_tables))
FUZZ_TARGETS := nbd kvd http control tls tsrelay net
FUZZ_OBJECTS := $(FUZZED_SOURCES:%.cc=build/fuzz/%.o) $(FUZZ_TARGETS:%=build/fuzz/tests/fuzz/%_fuzz.o)
build/fuzz/transport/dpdk/% build/fuzz/tests/fuzz/net_fuzz.o: CPPFLAGS += $(DPDK_FLAGS)
$(FUZZ_OBJECTS): build/fuzz/%.o: %.cc $(BUILD_FILES) | $(FETCHED) $(GENERATED)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  FUZZ $@")
	$(Q)clang++ $(CPPFLAGS) -std=c++20 -g1 -O1 -DBP_DEBUG=1 -MMD -MP \
	  -fsanitize=fuzzer-no-link,address,undefined -c -o $@ $<
-include $(FUZZ_OBJECTS:.o=.d)
build/fuzz/libfuzzed.a: $(FUZZED_SOURCES:%.cc=build/fuzz/%.o)
	$(Q)rm -f $@ && llvm-ar-14 rcs $@ $^

build/fuzz/tls: FUZZ_LINK := -lssl -lcrypto
build/fuzz/net: FUZZ_LINK := $(addprefix -lrte_,mempool ring mbuf eal)
$(FUZZ_TARGETS:%=build/fuzz/%): build/fuzz/%: build/fuzz/tests/fuzz/%_fuzz.o build/fuzz/libfuzzed.a
	$(Q)clang++ -fsanitize=fuzzer,address,undefined -o $@ $^ $(FUZZ_LINK)

.PHONY: fuzz-programs
fuzz-programs: $(FUZZ_TARGETS:%=build/fuzz/%)

# One target, or all targets in sequence.
fuzz-run: $(addprefix fuzz-run-,$(or $(FUZZ),$(FUZZ_TARGETS)))
.PHONY: $(FUZZ_TARGETS:%=fuzz-run-%)
$(FUZZ_TARGETS:%=fuzz-run-%): fuzz-run-%: build/fuzz/%
	$(Q)scripts/fuzz.sh $< tests/fuzz/corpus/$* $(FUZZ_SECONDS)
