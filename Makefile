# Bedplate. `make help` lists what can be made; MODE=release|hardened|debug|asan|tsan chooses how,
# V=1 shows the commands. Everything that is built goes to build/; nothing is built in the source
# folders.

MODE ?= release
BUILD := build/$(MODE)$(if $(COUNTED),-counted)
MIMALLOC := build/mimalloc

# As many jobs as there are processors, unless it is said how many (looked at in a recipe: MAKEFLAGS
# has no -j before).
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
PARALLEL_MAKE = $(MAKE) --no-print-directory $(JOBS)

.DEFAULT_GOAL := help

include scripts/mk/flags.mk
include scripts/mk/sources.mk
include scripts/mk/rules.mk
include scripts/mk/install.mk

.PHONY: help all run run-relay python install interface deb test coverage quick format pictures \
        figure tables docs image image-run check check-long check-image check-hardware bench bench-quick clean

# Goals whose recipes build by a make of their own: beside another goal, two would write one file.
ifneq ($(filter all run run-relay python install deb test coverage quick tables image image-run check check-% \
         bench bench-quick,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "  MODE=release|hardened|debug|asan|tsan (now: $(MODE)), V=1 shows the commands"

# The packages that are missing, for one of setup.sh's purposes, and mimalloc's sources. The real
# work is a second make each time: headers and tools may be missing when this one begins.
.PHONY: deps-run deps-python deps-image deps-check deps-bench deps-docs
deps-docs: ; $(Q)scripts/setup.sh docs
deps-run deps-python deps-image deps-check deps-bench: deps-%:
	$(Q)scripts/setup.sh $*
	$(Q)scripts/mimalloc.sh $(MIMALLOC)

all: deps-run ## build the program, the two libraries and the examples
	$(Q)$(PARALLEL_MAKE) MODE=$(MODE) products

run: deps-run ## start the demo appliance (CONFIG=apps/demo.toml); Ctrl-C stops it
	$(Q)$(PARALLEL_MAKE) MODE=$(MODE) $(BUILD)/bedplate
	$(Q)scripts/run.sh $(BUILD)/bedplate $(CONFIG)

run-relay: deps-run ## start the stream relay's demo with a stream of its own; Ctrl-C stops it
	$(Q)$(PARALLEL_MAKE) MODE=$(MODE) $(BUILD)/bedplate $(addprefix $(BUILD)/examples/,tsgen tsreader)
	$(Q)scripts/run_relay.sh $(BUILD) $(CONFIG)

python: deps-python ## build the Python package into build/release/python (docs/python.md)
	$(Q)$(PARALLEL_MAKE) MODE=$(MODE) python-package

install: deps-python ## install it with archives, headers, Python (PREFIX=/usr/local DESTDIR=); MODE=debug: archives beside
	$(if $(SANITIZED),$(error a sanitizer's build is not installed: its archives lack malloc))
	$(Q)$(PARALLEL_MAKE) MODE=$(MODE) $(LIBRARIES_ALL) $(MALLOC_LIBRARY) \
	  $(TESTING_LIBRARY) \
	  $(if $(filter debug,$(MODE)),$(DPDK_LIBRARY) $(TLS_LIBRARY),$(PROGRAM) python-package)
	$(Q)$(INSTALL)

interface: deps-check ## record the interface of the installed headers, after a change that is meant
	$(Q)scripts/install/interface.py record $(INTERFACE_COMPILER)

deb: deps-python ## build Debian packages of all that `make install` installs into build/deb
	$(Q)$(PARALLEL_MAKE) MODE=release products python-package
	$(Q)scripts/install/deb.py $(VERSION) build/deb

check: ## build and run every test
	$(Q)scripts/check.sh

test: deps-check ## build and run the unit tests whose group has T in its name (T=FastBox)
	$(Q)$(PARALLEL_MAKE) MODE=$(MODE) tests
	$(Q)$(BUILD)/bedplate-tests $(addprefix -g ,$(T))

coverage: deps-check ## say which lines of which layer run in the tests (FILES=1: of files, too)
	$(Q)$(PARALLEL_MAKE) MODE=coverage coverage-programs
	$(Q)scripts/coverage.py here $(if $(GUEST),guest) report

quick: deps-check ## look at layers and models, build, run the unit tests that a change goes into
	$(Q)scripts/layers.sh
	$(Q)tests/model/run.sh --code
	$(Q)$(PARALLEL_MAKE) MODE=$(MODE) tests
	$(Q)scripts/quick.sh $(BUILD)

format: deps-check ## write the sources as .clang-format says
	$(Q)scripts/format.sh -i

pictures: ## draw docs/pictures/*.svg from the texts beside them
	$(Q)scripts/pictures.py

docs: deps-docs ## build the documents as a site into build/docs/site, and look at its links
	$(Q)scripts/site.py

tables: ## write the tables of keys, counters and methods in docs/ as the program prints them
	$(Q)$(PARALLEL_MAKE) MODE=release products
	$(Q)scripts/tables.py build/release/bedplate

figure: bench-quick ## measure the main rows, and draw the README's figure of them
	$(Q)scripts/bench/figure.py

compile_commands.json: Makefile $(wildcard scripts/mk/*.mk) ## for editors and clang's tools
	$(Q)$(MAKE) --no-print-directory -Bn V=1 MODE=debug products tests | \
	  scripts/compile_commands.py > $@

image: deps-image ## build the image of an appliance (CONFIG=apps/demo.toml) into build/image
	$(Q)$(PARALLEL_MAKE) MODE=$(MODE) products
	$(Q)scripts/image/build.py $(BUILD)/bedplate $(or $(CONFIG),apps/demo.toml) build/image \
	  $(if $(INIT_PROGRAM),--init $(INIT_PROGRAM)) \
	  $(if $(CMDLINE),--cmdline "$(CMDLINE)") $(addprefix --module ,$(EXTRA_MODULES)) \
	  $(if $(SIGN_KEY),--sign-key "$(SIGN_KEY)") $(if $(SIGN_CERT),--sign-cert "$(SIGN_CERT)")

image-run: image ## boot it in QEMU, its NBD server at 127.0.0.1:10809; Ctrl-C stops it
	$(Q)CONTROL=build/image/control scripts/image/run.sh build/image

# Ten times and more of check's strains, all tests with every assertion of the allocator's, and the
# coverage of what unit tests alone do not run, which takes a sixth of the time that check has.
LONG_STEPS := setup mimalloc build-.* unit-debug unit-tsan soak-.* glibc redis adjustments stress kill \
              sleepers steps stops door hostile fuzz-.* install mistakes relay forbidden power ceph coverage.*
empty :=
check-long: ## strain for an hour and a half what make check strains for minutes
	$(Q)CHECK_MODES="release debug asan tsan" CHECK_THREADED= CHECK_COVERAGE=1 \
	  CHECK_ONLY='^($(subst $(empty) ,|,$(strip $(LONG_STEPS))))$$' \
	  SOAK_ROUNDS=1000 SOAK_SECONDS=1200 STRESS_SECONDS=600 KILL_ROUNDS=1000 SLEEPER_ROUNDS=50 \
	  STEP_SECONDS=600 STOP_EVENTS=1000 DOOR_SECONDS=300 HOSTILE_SECONDS=600 FUZZ_SECONDS=600 \
	  FOREIGN_TESTS=1 FORBID_ALL=1 TSRELAY_MIB=200 TSRELAY_SECONDS=600 MUTATIONS=10000000 \
	  POWER_CUTS=5000 POWER_FILE_CUTS=1000 POWER_BROKEN=1 CHECK_PACKAGES=check-long \
	  CEPH_STOP_SECONDS=30 \
	  scripts/check.sh

CHECK_SECONDS ?= 900
check-image: deps-check ## test in virtual machines, images too (EXTRA_MODULES="xpmem.ko knem.ko")
	$(Q)$(PARALLEL_MAKE) MODE=release products tests
	$(Q)EXTRA_MODULES="$(EXTRA_MODULES)" CHECK_END=$$(($$(date +%s) + $(CHECK_SECONDS))) \
	  CHECK_ONLY='^(guest|verbs|two-guests|image|image-crash|boot-time)$$' scripts/check.sh

check-hardware: deps-check ## list this machine's devices, ask, and test what takes them (YES=1: do not ask)
	$(Q)$(PARALLEL_MAKE) MODE=release products tests
	$(Q)scripts/hardware.py --build build/release

bench bench-quick: deps-bench
bench: ## measure against the peers, or against BASE=COMMIT: build/bench/report.html
	$(Q)$(PARALLEL_MAKE) MODE=release products $(if $(BASE),,bench-heap)
	$(Q)$(if $(BASE),scripts/bench/base.sh $(BASE),$(PARALLEL_MAKE) MODE=hardened bench-heap)
	$(Q)$(if $(BASE),BEDPLATE_OTHER=$(CURDIR)/build/bench/base) BEDPLATE=build/release/bedplate \
	  scripts/bench/run.sh $(if $(BASE),base)

bench-quick: ## measure the main rows in five minutes: build/bench/report.html
	$(Q)$(PARALLEL_MAKE) MODE=release products bench-heap
	$(Q)BEDPLATE=build/release/bedplate scripts/bench/run.sh quick

clean: ## remove everything that was built; the fetched sources stay
	$(Q)rm -rf build/release build/hardened build/debug build/asan build/asan-counted build/tsan build/coverage build/fuzz \
	  build/bench
