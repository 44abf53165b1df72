#!/usr/bin/python3
"""Checks that libbedplate.a compiles without the headers of rdma-core, DPDK and OpenSSL: none of its
sources includes one, directly or through our headers. Those libraries belong to other archives.

Prints a line for each such include.
"""

import re
import subprocess

from includes import INCLUDE, ROOT, headers_of_ours, text_of

FOREIGN = re.compile(r"(infiniband|openssl)/|rdma/rdma_cma\.h|rte_")
MAKEFILE = "include scripts/mk/sources.mk\nsources: ; @echo $(LIBRARY_SOURCES)\n"


def library_sources():
    done = subprocess.run(["make", "-s", "--no-print-directory", "-f", "-", "sources"], cwd=ROOT,
                          input=MAKEFILE, capture_output=True, text=True, check=True)
    sources = done.stdout.split()
    assert sources, "scripts/mk/sources.mk has no LIBRARY_SOURCES"
    return sources


def main():
    for source in library_sources():
        for path in sorted(headers_of_ours(source)):
            for kind, name in INCLUDE.findall(text_of(path)):
                if kind == "<" and FOREIGN.match(name):
                    print(f"{source}: <{name}> in {path}")


if __name__ == "__main__":
    main()
