# Where `make install` puts things, and what it says of how to link.

VERSION := 0.1.0
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
UNITDIR ?= $(PREFIX)/lib/systemd/system
DESTDIR ?=

INSTALL = scripts/install/install.py --build $(BUILD) --mimalloc $(MIMALLOC) \
          --version $(VERSION) --destdir "$(DESTDIR)" --prefix "$(PREFIX)" --libdir "$(LIBDIR)" \
          --unitdir "$(UNITDIR)" --libraries="$(LIBRARIES)" \
          --static-libraries="$(STATIC_LIBRARIES)" --malloc-link="$(MALLOC_LINK)"
