# Compiler and linker flags for each MODE.

# Sanitizer builds use clang: it takes half of g++'s time for them, and finds more than g++.
# MODE=coverage, which counts executed lines (scripts/coverage.py), uses clang, too.
SANITIZED := $(filter asan tsan,$(MODE))
CLANG := $(SANITIZED)$(filter coverage,$(MODE))
CXX := $(if $(CLANG),clang++,g++)
AR := gcc-ar
Q := $(if $(V),,@)
empty :=
comma := ,

# Maps sources to objects. A hardened build differs from the release only in alloc/
# (scripts/layers.sh checks it): the rest is compiled once for both.
build_of = $(BUILD)
ifeq ($(MODE),hardened)
  build_of = $(if $(filter alloc/% tests/alloc/%,$(1)),$(BUILD),build/release)
endif
objects = $(foreach source,$(1),$(call build_of,$(source))/$(source:.cc=.o))

# -Winvalid-pch: a precompiled header that does not fit is an error, not parsed again as a source.
WARNINGS := -Wall -Wextra -Wundef -Wconversion -Wshadow -Winvalid-pch -Werror
CPPFLAGS := -I. -Ibuild/generated -DTOML_EXCEPTIONS=0 -DJSON_NOEXCEPTION
# -fPIE: the archives go into executables of any kind, including static-pie. It is the default of
# Debian's g++; a compiler with another default must not make different archives.
# -g1: functions and lines, for addresses in messages and for profilers. Types and variables cost a
# fifth of the compile time; a debug build has them for gdb.
DEBUG_INFO := $(if $(filter debug,$(MODE)),-g,-g1)
CXXFLAGS := -std=c++20 $(DEBUG_INFO) -fPIE -fno-exceptions -fno-rtti $(WARNINGS)

# A program that chooses the pool for its whole heap requests malloc and new by name. Otherwise the
# linker, which extracts from an archive only requested symbols, would take libc's
# (docs/allocator.md).
MALLOC_LINK := -Wl,-u,malloc -Wl,-u,_Znwm

# Counts executed lines if LLVM_PROFILE_FILE names a file. If the file is mapped (%c), the counts of
# killed processes are kept, too. COUNTED=1 adds counting to the asan tests, in a separate folder:
# the archives of build/asan are for other programs, which link no counters.
COUNTING := -fprofile-instr-generate=/dev/null -fcoverage-mapping -mllvm -runtime-counter-relocation

ifeq ($(MODE),release)
  CXXFLAGS += -O2 -DNDEBUG
else ifeq ($(MODE),hardened)
  # A bad free does not harm the heap (alloc/bad_pointer.h), at some cost.
  CXXFLAGS += -O2 -DNDEBUG
  build/hardened/%.o: private CXXFLAGS += -DBP_HARDENED=1
else ifeq ($(MODE),debug)
  CXXFLAGS += -O1 -DBP_DEBUG=1
else ifeq ($(MODE),asan)
  CXXFLAGS += -O1 -DBP_DEBUG=1 -fsanitize=address,undefined -fno-sanitize-recover=undefined \
              -fno-omit-frame-pointer $(if $(COUNTED),$(COUNTING))
else ifeq ($(MODE),tsan)
  # Its model ignores fences. The doorbell's fences are still emitted, and no data depends on them.
  CXXFLAGS += -O1 -DBP_DEBUG=1 -fsanitize=thread
else ifeq ($(MODE),coverage)
  # A release with its heap.
  CXXFLAGS += -O0 -DNDEBUG $(COUNTING)
else
  $(error MODE is "$(MODE)"; it must be release, hardened, debug, asan, tsan or coverage)
endif

# g++ 12 warns of string concatenations (its bugs 105329 and 105651), unless <string> is a system
# header that is not precompiled. Tests have many of them.
ifndef CLANG
  $(addsuffix /tests/%.o,$(sort $(BUILD) build/release)): private CXXFLAGS += \
    $(addprefix -Wno-,array-bounds restrict stringop-overflow stringop-overread)
endif

# A third of the tests' compile time would go into optimizing code that runs once. Tests of a
# release optimize the library's inline functions along with their own, so they keep -O1.
ifneq ($(MODE),debug)
  $(foreach build,$(sort $(BUILD) build/release),$(build)/tests/%.o $(build)/tests/prelude.h.gch): \
    private CXXFLAGS += $(if $(CLANG),-O0,-O1)
endif

# Sanitizers need a dynamic program and their own malloc.
ifdef CLANG
  CXXFLAGS += -fsized-deallocation $(addprefix -Wno-,sign-conversion overloaded-virtual \
                string-conversion unused-private-field deprecated-enum-enum-conversion \
                unneeded-internal-declaration)
  # CppUTest's operator new would be a second one, and sources do not know its macro.
  CPPFLAGS += -DCPPUTEST_MEM_LEAK_DETECTION_DISABLED
endif
ifdef SANITIZED
  LDFLAGS := $(filter -fsanitize% -fno-sanitize% -fprofile%,$(CXXFLAGS))
else
  # Removes unreferenced sections; not in coverage, whose lists of counts are unreferenced.
  LDFLAGS := -static -Wl,--build-id \
             $(if $(CLANG),,-Wl$(comma)--gc-sections$(comma)-T$(comma)scripts/mk/driver_texts.ld) \
             $(filter -fprofile%,$(CXXFLAGS))
endif

# mimalloc's sources are compiled into alloc/confined_mimalloc.cc. They have their own style
# (-Wno-...; g++ ignores a pragma for -Wundef), and the unused mi_new throws. Hidden: in a program
# that also links a libmimalloc.so, that library's own calls would otherwise end here.
MIMALLOC_FLAGS := -I$(MIMALLOC)/include -I$(MIMALLOC)/src -DMI_STATIC_LIB -DMI_NO_GETENV \
                  -DMI_CACHE_DISABLE -DMI_HUGE_PAGE_ABANDON -DMI_STAT=0 \
                  -DMI_SKIP_COLLECT_ON_EXIT -fno-builtin-malloc \
                  -ftls-model=local-exec -fvisibility=hidden -fexceptions -Wno-undef \
                  -Wno-unused-variable $(if $(CLANG),,-Wno-maybe-uninitialized) \
                  $(if $(filter debug,$(MODE)),-DMI_DEBUG=1,-O3 -DMI_DEBUG=0) \
                  $(if $(filter hardened,$(MODE)),-DMI_SECURE=4 -Wno-stringop-overflow)
# One object for the archives, and one for each shared object (rules.mk).
every_object = $(call objects,$(1).cc) $(BUILD)/bench/$(1).o $(BUILD)/join/$(1).o
$(call every_object,alloc/bad_pointer): private CXXFLAGS += -I$(MIMALLOC)/include
WITH_MIMALLOC := $(foreach name,confined_mimalloc intercepting_heap heap_walk thread_heaps,\
                   $(call every_object,alloc/$(name)))
$(WITH_MIMALLOC): private CXXFLAGS += $(MIMALLOC_FLAGS)
$(call every_object,alloc/operator_new): private CXXFLAGS += -I$(MIMALLOC)/include -fno-builtin-malloc
# Exceptions: the explicit interface throws, whether libbedplate-malloc.a is linked or not. One file
# catches all exceptions of services, another a parser's failed allocation.
THROWING := $(call every_object,alloc/operator_new) $(call every_object,alloc/pool_resource) \
            $(call objects,apps/services/service_calls.cc apps/control/control_request.cc $(addprefix tests/,alloc/operator_new_test.cc \
              alloc/pool_resource_test.cc apps/services/service_calls_test.cc \
              apps/services/service_test.cc transport/coroutines/coroutine_exception_test.cc))
$(THROWING): private CXXFLAGS += -fexceptions
# Type information of public classes, for programs with RTTI that derive from them, or whose
# sanitizer inspects them. A sanitizer build of this tree would inspect private classes as well.
WITH_TYPEINFO := $(call every_object,alloc/pool_resource) $(call objects,apps/ports/port_service.cc \
  $(addprefix transport/,messages/message_answers_datapath.cc messages/messenger.cc \
  shm/membership/member_source.cc \
  vfio/vfio_device.cc \
  $(addprefix verbs/,device/verbs_device.cc channel/verbs_provider.cc)))
$(WITH_TYPEINFO): private CXXFLAGS += -frtti $(if $(filter asan,$(MODE)),-fno-sanitize=vptr)
# Objects that no precompiled header fits.
OWN_FLAGS := $(WITH_MIMALLOC) $(THROWING) $(WITH_TYPEINFO)
# Unity's header under its own name: the same file also compiles with Unity.
UNITY_TESTS := $(call objects,tests/apps/c_interface/bedplate_c_test.cc tests/apps/c_interface/messages_c_test.cc)
$(UNITY_TESTS): private CPPFLAGS += -Itests/support

# Libraries that a program links after the archives; `make install` also writes them into the .pc
# files.
LIBRARIES := -luring -lpthread
# Optional parts of the runtime, used only if linked. The runtime references them weakly, so each
# one is requested; otherwise the linker would extract nothing from its archive.
VERBS_LINK := -Wl,-u,bedplate_peers_part -Wl,-u,bedplate_perf_verbs_part \
              -Wl,-u,bedplate_verbs_tables
INIT_LINK := -Wl,-u,bedplate_init_part -Wl,-u,bedplate_init_tables
# A dynamic program loads the RDMA drivers of the system.
VERBS_LIBRARIES := -lrdmacm -libverbs
# Further libraries of a static program with verbs, or a static-pie one.
#
# The RDMA drivers: all that Debian has as archives. rdma-core finds them only by this list.
VERBS_DRIVERS := bnxt_re cxgb4 efa erdma hfi1verbs hns ipathverbs irdma mana mlx4 mlx5 mthca \
                 ocrdma qedr rxe siw vmw_pvrdma
$(call every_object,transport/verbs/device/verbs_drivers): private CPPFLAGS += \
  -DRDMA_STATIC_PROVIDERS=$(subst $(empty) $(empty),$(comma),$(strip $(VERBS_DRIVERS)))
# libnl can resolve names. The linker warns of it at length, as glibc would load shared libraries.
# Nothing here asks libnl to; a program that does so stops.
LOOKUPS := getaddrinfo getprotobyname getprotobynumber
# Some archives have the interface version in their name.
STATIC_VERBS := -Wl,-u,bedplate_static_drivers \
  $(foreach name,$(LOOKUPS),-Wl,--wrap=$(name),--defsym=__wrap_$(name)=abort) \
  $(foreach driver,$(VERBS_DRIVERS),-l$(driver)$(if $(filter \
    efa mana mlx4 mlx5,$(driver)),,-rdmav34)) -libverbs -lnl-route-3 -lnl-3
# Ports through DPDK (transport/dpdk), with the drivers of this list; `bedplate doctor` names them.
# af_xdp needs kernel headers that may be newer than the machine's kernel; it then reports an error.
DRIVERS ?= af_packet af_xdp e1000 ena i40e iavf ice ixgbe memif mlx5 null ring tap virtio vmxnet3
$(call every_object,transport/dpdk/eal/drivers): private CPPFLAGS += \
  -DBP_DPDK_DRIVERS='"$(strip $(DRIVERS))"'
# Objects with DPDK's headers: these need SSE 4.2, as every machine supported by DPDK has it.
WITH_DPDK := $(foreach build,$(sort $(BUILD) build/release),$(addsuffix /%.o,$(addprefix \
  $(build)/,transport/dpdk apps/ports tests/transport/dpdk tests/apps/ports)))
DPDK_FLAGS := -march=corei7 -include rte_config.h $(addprefix -isystem ,/usr/include/dpdk \
                /usr/include/$(shell uname -m)-linux-gnu/dpdk)
$(WITH_DPDK): private CXXFLAGS += $(DPDK_FLAGS)
DPDK_LINK := -Wl,-u,bedplate_ports_part
# Puts EAL's own mappings at start into the pool (transport/dpdk/eal/).
DPDK_WRAPS := $(addprefix -Wl$(comma)--wrap=,mmap64 munmap madvise \
                $(if $(filter af_xdp,$(DRIVERS)),xsk_socket__create) \
                $(if $(filter memif,$(DRIVERS)),memif_connect memif_free_regions) \
                rte_intr_callback_unregister rte_intr_callback_unregister_pending)
# Linked whole: constructors register drivers and buses. The rest is linked by need, in any order.
DPDK_WHOLE := $(DRIVERS:%=net_%) bus_pci bus_vdev mempool_ring \
              $(if $(filter mlx5,$(DRIVERS)),bus_auxiliary common_mlx5)
DPDK_PARTS := ethdev pci cryptodev security hash rcu net mbuf mempool ring meter \
              telemetry kvargs gso timer eal common_iavf
DPDK_LIBRARIES := $(DPDK_WRAPS) -Wl,--whole-archive $(DPDK_WHOLE:%=-l:librte_%.a) \
  -Wl,--no-whole-archive -Wl,--start-group $(DPDK_PARTS:%=-l:librte_%.a) -Wl,--end-group \
  $(if $(filter af_xdp,$(DRIVERS)),-lxdp -lbpf -lelf -lz) \
  $(if $(filter mlx5,$(DRIVERS)),-lmlx5 -libverbs -lnl-route-3 -lnl-3) -lnuma -lbsd -lmd -lm
# Calls for which glibc would load shared libraries. EAL calls dlopen to find out whether it is a
# shared library itself, and asks for a user's home directory to write traces, which it never does
# here.
DPDK_LOOKUPS := -Wl,--wrap=dlopen,--defsym=__wrap_dlopen=bedplate_loads_nothing \
                -Wl,--wrap=getpwuid,--defsym=__wrap_getpwuid=abort
# TLS (transport/tls). OpenSSL can resolve names and load libraries; nothing here asks it to.
TLS_LINK := -Wl,-u,bedplate_tls_part
OPENSSL := -lssl -lcrypto
TLS_LOOKUPS := -Wl,--wrap=dlopen,--defsym=__wrap_dlopen=openssl_loads_nothing \
               -Wl,--wrap=gethostbyname,--defsym=__wrap_gethostbyname=abort
TLS_LIBRARIES := $(OPENSSL) $(if $(SANITIZED),,$(TLS_LOOKUPS))
# Tables for the parts of OpenSSL that a static program leaves out.
TLS_LEFT_OUT := $(if $(SANITIZED),,$(BUILD)/tls_left_out.o)
# Links the programs of this tree, and additions for programs with ports.
LINK_PORTS := $(DPDK_LIBRARIES) $(if $(SANITIZED),,$(DPDK_LOOKUPS))
LINK_LIBRARIES := $(VERBS_LIBRARIES) $(if $(SANITIZED),,$(STATIC_VERBS)) $(LIBRARIES)
