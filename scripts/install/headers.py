"""The public headers: those of ROOTS, and all headers that they include.

They are installed in their layers' folders, PREFIX/include/bedplate/apps/boot/service.h, and find
one another through -IPREFIX/include/bedplate, which bedplate.pc and the CMake package set. A header
that no root reaches stays private. public_headers.txt in this folder lists the public headers, so
that a careless #include makes no header public. Each of them reaches platform/version.h, so that an
object that includes any does not link with the archive of another interface. Run as a program, this
prints what differs from the list and which header does not reach it (layers.sh does).
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "public_headers.txt")
# Refers to the symbol of the interface.
VERSION = "platform/version.h"
# For processes that join, and for services.
C_HEADERS = ("apps/c_interface/bedplate.h", "apps/c_interface/bedplate_service.h")
# Headers for programs to include, in the order of bedplate.hpp.
ROOTS = (
    "apps/program/program.h",
    "apps/services/service.h",
    "apps/services/service_plan.h",
    "apps/services/tls_keys.h",
    "apps/configuration/read_table.h",
    "apps/boot/service_context.h",
    "apps/boot/placed_server.h",
    "alloc/added_heap.h",
    "alloc/buffer_pool_datapath.h",
    "alloc/heap_owner.h",
    "alloc/keyed_cache_datapath.h",
    "alloc/pool_allocator.h",
    "alloc/pool_resource.h",
    "alloc/support_level.h",
    "platform/log.h",
    "platform/progress.h",
    "platform/text_words.h",
    "transport/messages/joined_process.h",
    "transport/messages/message_answers_datapath.h",
    "transport/sockets/datagram_network.h",
    "transport/loop/spsc_fifo_datapath.h",
    "transport/sockets/stream_server.h",
    "transport/vfio/vfio_pool.h",
)
# Headers that a program includes by name if it wants them; bedplate.hpp leaves them out.
OPTIONAL_ROOTS = ("transport/coroutines/coroutines.h", "transport/sockets/socket_thread.h")
# Headers of libbedplate-verbs.a. They need rdma-core's headers, so bedplate.hpp leaves them out.
VERBS_ROOTS = ("transport/verbs/joined/joined_verbs.h", "transport/verbs/channel/verbs_provider.h",
               "apps/peers/verbs_settings.h")
# Headers of libbedplate-dpdk.a; bedplate.hpp leaves them out, too.
DPDK_ROOTS = ("apps/ports/port_service.h",)
# Headers of libbedplate-testing.a, for tests alone.
TESTING_ROOTS = ("apps/testing/c_service.h", "apps/testing/session_peer.h",
                 "apps/testing/test_appliance.h")
ALL_ROOTS = (*ROOTS, *OPTIONAL_ROOTS, *VERBS_ROOTS, *DPDK_ROOTS, *TESTING_ROOTS)

UMBRELLA = """\
// Bedplate for programs in C++: a program of services (apps/program/program.h), its heap, and
// processes that join a pool. Each header can be included alone, as these are. C: bedplate.h.
#pragma once

{includes}
"""
C_UMBRELLA = """\
/* Bedplate for programs in C: bedplate.h to join a pool, bedplate_service.h for services. */
#include "{header}"
"""


def included(path):
    """The headers of this tree that the header `path` includes; C headers include relative to it."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', file.read(), re.M)
    return [name if re.match(r"\w+/", name) else
            os.path.normpath(os.path.join(os.path.dirname(path), name)) for name in names]


def closure(roots):
    """`roots` and all headers that they include, sorted."""
    found, to_do = set(), list(roots)
    while to_do:
        path = to_do.pop()
        if path not in found:
            found.add(path)
            to_do += included(path)
    return sorted(found)


def public_headers():
    return closure((*ALL_ROOTS, *C_HEADERS))


def installed():
    """{path below include/bedplate: text} of all installed headers."""
    files = {}
    for path in public_headers():
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            files[path] = file.read()
    includes = "\n".join(f'#include "{path}"' for path in ROOTS)
    files["bedplate.hpp"] = UMBRELLA.format(includes=includes)
    for header in C_HEADERS:
        files[os.path.basename(header)] = C_UMBRELLA.format(header=header)
    return files


def differences():
    """A line for each header that is public but not listed, or listed but not public."""
    with open(LIST, encoding="utf-8") as file:
        listed = set(file.read().split())
    public = set(public_headers())
    return [f"{path} became public: forward-declare its types, or add it to public_headers.txt"
            for path in sorted(public - listed)] + \
           [f"{path} is no longer public: remove it from public_headers.txt"
            for path in sorted(listed - public)]


def without_interface():
    """A line for each public header that an object can include without a reference to the symbol of
    its interface."""
    return [f"{path} does not reach {VERSION}: include it" for path in public_headers()
            if VERSION not in closure((path,))]


if __name__ == "__main__":
    problems = differences() + without_interface()
    print(*problems, sep="\n", end="")
    sys.exit(bool(problems))
