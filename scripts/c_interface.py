#!/usr/bin/python3
"""Checks that C has what C++ has: each function of the C++ classes that services use has a row in
docs/services.md, with its functions of the C headers, or with the reason why there is none. Each
function of the C headers for services is in a row, and no row names a function that does not exist.

Prints a line for each difference.
"""

import re

from classes import counted
from includes import ROOT

PAGE = ROOT / "docs" / "services.md"
CLASSES = {
    "Service": "apps/services/service.h",
    "ServicePlan": "apps/services/service_plan.h",
    "ServiceContext": "apps/boot/service_context.h",
    "ConfigurationTable": "apps/configuration/configuration_table.h",
    "ConfigurationKey": "apps/configuration/configuration_table.h",
    "CounterTable": "platform/counter_table.h",
    "CounterDescription": "platform/counter_table.h",
    "ControlMethods": "apps/services/control_methods.h",
    "ControlCall": "apps/services/control_methods.h",
    "JsonText": "apps/counters/json_text.h",
    "StreamServer": "transport/sockets/stream_server.h",
    "PlacedServer": "apps/boot/placed_server.h",
    "StreamSession": "transport/sockets/stream_session_datapath.h",
    "StreamInput": "transport/sockets/stream_input_datapath.h",
    "LaterAnswer": "transport/sockets/later_answers_datapath.h",
    "StreamSockets": "transport/sockets/stream_sockets.h",
    "DatagramSocket": "transport/sockets/datagram_socket.h",
    "File": "transport/files/files.h",
    "EventLoop": "transport/loop/event_loop.h",
    "RequestTrace": "platform/trace_ring.h",
    "Messenger": "transport/messages/messenger.h",
    "Endpoint": "transport/messages/endpoint.h",
}
# A protocol derives from it.
WITH_PROTECTED = ("StreamSession",)
# The headers of which each function is in a row; bedplate.h is also for processes without services.
SERVICE_HEADERS = ("bedplate_service.h", "bedplate_datagrams.h", "bedplate_session.h")
SECTION = re.compile(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", re.M | re.S)
ONLY_IN_C = re.compile(r"^### Only in C\n(.*?)(?=^##|\Z)", re.M | re.S)
ROW = re.compile(r"^\| (`.*?) \|(.*?)\|(.*?)\|$", re.M)
NAME = re.compile(r"`(\w+)`")


def cpp_methods(name, text):
    """The functions of the class that its users call, without constructors and operators."""
    access = ("public", "protected") if name in WITH_PROTECTED else ("public",)
    return {method for owner, its_access, method in counted(text).methods
            if owner == name and its_access in access and method not in (name, "method")}


def c_functions(text):
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    code = re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", "", code, flags=re.M)  # and no macros
    return set(re.findall(r"\b(bp_\w+)\(", code))


def differences(page, classes, c_headers):
    """`classes`: {name: text of its header}; `c_headers`: {name: text}."""
    sections = dict(SECTION.findall(page))
    there = {name: c_functions(text) for name, text in c_headers.items()}
    all_c = set().union(*there.values())
    named = set(re.findall(r"`(bp_\w+)`", "".join(ONLY_IN_C.findall(page))))
    for name, text in classes.items():
        methods, rows = cpp_methods(name, text), ROW.findall(sections.get(name, ""))
        described = [method for cpp, _, _ in rows for method in NAME.findall(cpp)]
        yield from (f"{name}::{each} has no row" for each in sorted(methods - set(described)))
        yield from (f"{name}::{each} has a row, but does not exist"
                    for each in sorted(set(described) - methods))
        yield from (f"{name}::{each} has two rows"
                    for each in sorted(set(described)) if described.count(each) > 1)
        for cpp, c, why in rows:
            named |= set(NAME.findall(c))
            if not NAME.findall(c) and not why.strip():
                yield f"{name}: the row of {cpp} has neither a function in C nor a reason"
    yield from (f"{each} is in a row, but in no C header" for each in sorted(named - all_c))
    for header in SERVICE_HEADERS:
        yield from (f"{each} of {header} is in no row"
                    for each in sorted(there.get(header, set()) - named))


def check_itself():
    """Each kind of difference is found."""
    page = ("### `Cup`\n\n| C++ | C | |\n|---|---|---|\n| `fill` | `bp_fill` | |\n"
            "| `spill` | | |\n| `fill` | `bp_gone` | |\n### Only in C\n\n`bp_main`\n")
    classes = {"Cup": "class Cup { public: Cup(); void fill(int n = f()); int level() const {} };"}
    headers = {"bedplate_session.h": "#define bp_x(a) \\\n bp_y(a)\nvoid bp_fill(int);\n"
                                     "/* bp_old() */ void bp_pour(void); int bp_main(void);"}
    assert list(differences(page, classes, headers)) == [
        "Cup::level has no row", "Cup::spill has a row, but does not exist",
        "Cup::fill has two rows",
        "Cup: the row of `spill` has neither a function in C nor a reason",
        "bp_gone is in a row, but in no C header", "bp_pour of bedplate_session.h is in no row"], \
        list(differences(page, classes, headers))


def main():
    check_itself()
    folder = ROOT / "apps" / "c_interface"
    headers = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("bedplate*.h")}
    classes = {name: (ROOT / path).read_text(encoding="utf-8") for name, path in CLASSES.items()}
    for each in differences(PAGE.read_text(encoding="utf-8"), classes, headers):
        print(f"docs/services.md: {each}")


if __name__ == "__main__":
    main()
