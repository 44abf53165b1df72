# The paths of `make install`, and the link lines that it writes.

# The version in the public header.
VERSION := $(shell awk '/^.define BP_VERSION_(MAJOR|MINOR|PATCH) / {printf "%s%d", dot, $$3; dot = "."}' \
                       platform/version.h)
ifeq ($(filter 3,$(words $(subst ., ,$(VERSION)))),)
$(error platform/version.h does not define BP_VERSION_MAJOR, _MINOR and _PATCH)
endif
# Compiles the installed headers for scripts/install/interface.py.
INTERFACE_COMPILER = g++ -std=c++20 -I. $(DPDK_FLAGS)
.PHONY: check-interface
check-interface:
	$(Q)scripts/install/interface.py check $(INTERFACE_COMPILER)

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
UNITDIR ?= $(PREFIX)/lib/systemd/system
# Debian's own packages share one folder for all versions of Python; others have one for each.
PYTHON_VERSION = $(shell /usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PYTHONDIR ?= $(PREFIX)/lib/python$(if $(filter /usr,$(PREFIX)),3,$(PYTHON_VERSION))/dist-packages
DESTDIR ?=

INSTALL = scripts/install/install.py --build $(BUILD) --mimalloc $(MIMALLOC) \
          --version $(VERSION) --destdir "$(DESTDIR)" --prefix "$(PREFIX)" --libdir "$(LIBDIR)" \
          --unitdir "$(UNITDIR)" --pythondir "$(PYTHONDIR)" --libraries="$(LIBRARIES)" \
          --malloc-link="$(MALLOC_LINK)" --init-link="$(INIT_LINK)" \
          --verbs-link="$(VERBS_LINK)" --verbs-libraries="$(VERBS_LIBRARIES)" \
          --static-verbs="$(STATIC_VERBS)" \
          --dpdk-link="$(DPDK_LINK)" --dpdk-libraries="$(DPDK_LIBRARIES)" \
          --tls-link="$(TLS_LINK)" --tls-libraries="$(OPENSSL)" $(if $(filter debug,$(MODE)),--debug)
