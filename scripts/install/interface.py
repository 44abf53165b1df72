#!/usr/bin/python3
"""Records the interface of the installed headers, on which compiled programs rely, as text.

    scripts/install/interface.py check COMPILER FLAG...    (a step of make check)
    scripts/install/interface.py record COMPILER FLAG...   (make interface)

`check` compares interface.txt in this folder with the headers, and wants an entry in CHANGELOG.md
for the number of the interface. `record` writes interface.txt anew, but refuses if a line of the
last commit's is gone while BP_INTERFACE (platform/version.h) is the same: programs that were
compiled before would link, and go wrong. A program bears with new lines.

The text has the size of each class, the place of each member, the slot of each virtual function,
the functions that the archives define, and the values of constants and enumerators. Inline
functions are left out: they are compiled into the program. Private functions are left out, unless
an inline function calls them.

It is made from the debug information of one object that includes all public headers, so it belongs
to one compiler: with another one `check` is skipped. Debug builds have all of it, too, since an
object may be linked with the archives of either.
"""

import collections
import concurrent.futures
import os
import platform
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import headers

RECORD = "scripts/install/interface.txt"
CHANGES = "CHANGELOG.md"
# Debug information of all classes and functions, and the inline functions themselves.
EVERYTHING = ("-g", "-fno-eliminate-unused-debug-types", "-fno-eliminate-unused-debug-symbols",
              "-femit-class-debug-always", "-fkeep-inline-functions")
CLASSES = {"class_type": "class", "structure_type": "struct", "union_type": "union"}
REST = "functions and constants"
# Template arguments that nobody writes.
USUAL = re.compile(r", (?:std::(?:allocator|default_delete|char_traits|hash|less|equal_to)<|"
                   r"18446744073709551615)")


def text_of(path):
    with open(os.path.join(headers.ROOT, path), encoding="utf-8") as file:
        return file.read()


def number():
    return int(re.search(r"^#define BP_INTERFACE (\d+)$", text_of(headers.VERSION), re.M)[1])


class Entry:
    """An entry of the debug information: a class, a function, a member."""

    def __init__(self, tag):
        self.tag, self.values, self.entries = tag, {}, []

    def __contains__(self, name):
        return name in self.values

    def text(self, name):
        """The text of a value: of "name" and of 0x12 "name" it is name."""
        found = re.search(r'"(.*)"', self.values.get(name, ""))
        return found[1] if found else ""

    def number(self, name):
        found = re.search(r"-?\b(0x[0-9a-f]+|\d+)\b", self.values.get(name, ""))
        return int(found[0], 0) if found else None

    def of(self, *tags):
        return [entry for entry in self.entries if entry.tag in tags]

    def header(self):
        return os.path.relpath(self.text("decl_file"), headers.ROOT) if "decl_file" in self else ""

    def is_private(self, of_class):
        usual = "private" if of_class.tag == "class_type" else "public"
        return self.values.get("accessibility", usual).endswith("private")


def entries_of(dump):
    """The tree of entries that llvm-dwarfdump prints."""
    root = Entry("root")
    open_ = [(-1, root)]
    for line in dump.splitlines():
        if head := re.match(r"0x[0-9a-f]+:( +)DW_TAG_(\w+)", line):
            while open_[-1][0] >= len(head[1]):
                open_.pop()
            entry = Entry(head[2])
            open_[-1][1].entries.append(entry)
            open_.append((len(head[1]), entry))
        elif value := re.match(r" +DW_AT_(\w+)\t\((.*)\)$", line):
            open_[-1][1].values[value[1]] = value[2]
    return root


def as_written(text):
    """A type as the headers write it."""
    while usual := USUAL.search(text):
        end, depth = usual.end(), text[usual.end() - 1] == "<"
        while depth > 0:
            depth += {"<": 1, ">": -1}.get(text[end], 0)
            end += 1
        text = text[:usual.start()] + text[end:]
    text = re.sub(r"(?:\w+::)+const ", "const ", text).replace("bedplate::", "")
    text = text.replace("std::__cxx11::basic_string<char>", "std::string")
    return text.replace(" >", ">").replace(" *", "*").replace(" &", "&")


def free_functions():
    """The full names of the functions at namespace scope, where clang-format indents nothing."""
    names = set()
    for path in headers.public_headers():
        scope = ["::"]
        for line in text_of(path).splitlines():
            if opened := re.match(r"namespace ([\w:]+) \{", line):
                scope.append(f"{opened[1]}::")
            elif line.startswith("}  // namespace"):
                scope.pop()
            elif named := re.match(r"[a-zA-Z_\[][\w:<>,\[\] ]*[ *&](?!alignas)(\w+)\(", line):
                names.add("".join(scope) + named[1])
    return sorted(names)


def source():
    """Includes all public headers, and names the functions: one that is only declared is otherwise
    left out of the debug information."""
    return "\n".join([*(f'#include "{path}"' for path in headers.public_headers()),
                      "namespace named {", *(f"using {name};" for name in free_functions()), "}\n"])


def declaration(function):
    """A function as its header declares it."""
    parameters = function.of("formal_parameter")
    types = [as_written(one.text("type")) for one in parameters if "artificial" not in one]
    types += ["..."] * len(function.of("unspecified_parameters"))
    itself = [as_written(one.text("type")) for one in parameters if "artificial" in one]
    const = " const" if itself and itself[0].startswith("const ") else ""
    of_class = re.search("[CD]4(?=E)", function.text("linkage_name"))  # creates or destroys
    returned = "" if of_class else f"{as_written(function.text('type')) or 'void'} "
    return f"{returned}{function.text('name')}({', '.join(types)}){const}"


def declarations(functions):
    return sorted({declaration(one) for one in functions},
                  key=lambda line: (re.search(r"~?\w+\(", line)[0], line))


class Interface:
    """The lines of the interface, in blocks: one for each class, and one for the rest of a header.
    """

    def __init__(self, compiler):
        with tempfile.TemporaryDirectory() as home:
            made = os.path.join(home, "interface.o")
            subprocess.run([*compiler, *EVERYTHING, "-x", "c++", "-", "-c", "-o", made], check=True,
                           input=source(), text=True, cwd=headers.ROOT)
            dump, symbols = (subprocess.run([*command, made], check=True, text=True,
                                            stdout=subprocess.PIPE).stdout
                             for command in (("llvm-dwarfdump-14", "--debug-info"), ("nm",)))
        symbols = [line.split()[-2:] for line in symbols.splitlines()]
        # The inline functions, and all that these call.
        self.defined = {name for kind, name in symbols if kind != "U"}
        self.called = {name for kind, name in symbols if kind == "U"}
        self.public = set(headers.public_headers())
        self.blocks = collections.defaultdict(list)  # by header and heading
        for unit in entries_of(dump).entries:
            self.add_all(unit, "")
        version = subprocess.run([compiler[0], "-dumpversion"], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout.strip()
        self.compiler = f"{compiler[0]} {version.partition('.')[0]}, {platform.machine()}"

    def add_all(self, parent, scope):
        functions = []
        for entry in parent.entries:
            name = entry.text("name")
            if entry.tag == "namespace" and name not in ("named", "std"):
                self.add_all(entry, scope if name in ("", "bedplate") else f"{scope}{name}::")
            elif entry.header() in self.public:
                self.add(entry, scope)
                functions += [entry] if entry.tag == "subprogram" and name else []
        for header in {one.header() for one in functions}:
            self.blocks[header, REST] += declarations(
                one for one in functions if one.header() == header and not self.is_inline(one))

    def symbols_of(self, function):
        """The debug information names constructors and destructors C4 and D4, for all of theirs."""
        name = function.text("linkage_name") or function.text("name")
        return {name, *(re.sub("([CD])4(?=E)", rf"\g<1>{kind}", name) for kind in "012")}

    def is_inline(self, function):
        return "defaulted" in function or not self.defined.isdisjoint(self.symbols_of(function))

    def add(self, entry, scope):
        """Adds a type or a constant."""
        header, name = entry.header(), as_written(entry.text("name")) or "(unnamed)"
        if entry.tag in CLASSES and "declaration" not in entry:
            self.add_class(entry, scope, name)
        elif entry.tag == "enumeration_type":
            self.blocks[header, f"enum {scope}{name}: {as_written(entry.text('type'))}"] += [
                f"{one.text('name')} = {one.number('const_value')}"
                for one in entry.of("enumerator")]
        elif entry.tag == "typedef" and name != as_written(entry.text("type")):
            self.blocks[header, REST].append(f"{scope}{name} = {as_written(entry.text('type'))}")
        elif entry.tag == "variable" and "const_value" in entry:
            self.blocks[header, REST].append(f"{scope}{name} = {entry.number('const_value')}")

    def add_class(self, entry, scope, name):
        members = [one for one in entry.of("member") if "artificial" not in one]
        functions = [one for one in entry.of("subprogram")
                     if "artificial" not in one and "deleted" not in one]
        virtual = [one for one in functions if "virtuality" in one]
        heading = f"{CLASSES[entry.tag]} {scope}{name}: {entry.number('byte_size')} bytes"
        heading += f", aligned to {entry.number('alignment')}" if "alignment" in entry else ""
        heading += f", {len(members)} members"
        heading += f", {len(virtual)} virtual functions" if virtual else ""
        lines = self.blocks[entry.header(), heading]
        for one in entry.of("inheritance"):
            lines.append(f"at {one.number('data_member_location')}: base "
                         f"{as_written(one.text('type'))}")
        for one in members:
            place = f"at {one.number('data_member_location') or 0}"
            if "bit_size" in one:
                place = f"bit {one.number('data_bit_offset')}, {one.number('bit_size')} wide"
            private = "private " if one.is_private(entry) else ""
            lines.append(f"{place}: {private}{as_written(one.text('type'))} {one.text('name')}")
        for one in virtual:
            slot = one.number("vtable_elem_location")
            lines.append(f"virtual{'' if slot is None else f' {slot}'}: {declaration(one)}")
        for one in entry.of("variable"):
            if "const_value" in one and not one.is_private(entry):
                lines.append(f"{one.text('name')} = {one.number('const_value')}")
        if "<" not in name:  # functions of a template are compiled into the program
            lines += declarations(
                one for one in functions if one not in virtual and not self.is_inline(one) and
                not (one.is_private(entry) and self.called.isdisjoint(self.symbols_of(one))))
        for one in entry.of(*CLASSES, "enumeration_type", "typedef"):
            self.add(one, f"{scope}{name}::")

    def text(self):
        lines = [f"interface {number()}, as {self.compiler} compiles it"]
        for (header, heading), block in sorted(self.blocks.items()):
            if block or heading != REST:
                lines += ["", f"{heading} ({header})", *(f"  {line}" for line in block)]
        return "\n".join(lines) + "\n"


def facts_of(text):
    """The lines of a text, each with its heading but without its header: a class may move."""
    facts, heading = set(), ""
    for line in text.splitlines()[1:]:
        if not line.startswith(" "):
            heading = line.rpartition(" (")[0]
        facts.add(f"{heading}{line[1:]}" if line.startswith(" ") else heading)
    return facts


def difference(text):
    """The lines in which `text` differs from the record, with the headings of their blocks."""
    return subprocess.run(["diff", "-u", "-F", "^[a-z]", "--label", "recorded", "--label", "now",
                           RECORD, "-"], input=text, stdout=subprocess.PIPE, text=True, check=False,
                          cwd=headers.ROOT).stdout


def check(compiler):
    """Prints what is wrong. Returns the exit code."""
    recorded = text_of(RECORD)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        now, debug = pool.map(Interface, (compiler, [*compiler, "-DBP_DEBUG=1"]))
    its = re.match(r"interface \d+, as (.*) compiles it\n", recorded)
    if its is None or its[1] != now.compiler:
        print(f"skipped: the interface is recorded as {its[1] if its else 'nobody'} compiles it, "
              f"and this is {now.compiler}\n0 passed, 0 failed, 1 skipped")
        return 0
    problems = []
    if now.text() != recorded:
        print(difference(now.text()))
        problems.append(f"the installed headers have another interface than {RECORD}, see above; "
                        "if that is meant, run `make interface`, and tell it in the commit")
    # No class has a DebugHold: functions do.
    gone = sorted(one for one in facts_of(now.text()) - facts_of(debug.text())
                  if "::DebugHold" not in one)
    if gone:
        print(*gone, sep="\n")
        problems.append("debug builds have these lines otherwise; BP_DEBUG may change what functions "
                        "do, but no class")
    if not re.search(rf"\bInterface {number()}\b", text_of(CHANGES)):
        problems.append(f"{CHANGES} has no entry for it; begin one with: Interface {number()}:")
    for problem in problems:
        print(f"interface: {problem}")
    return 1 if problems else 0


def record(compiler):
    """Writes the record, or says why not. Returns the exit code."""
    text = Interface(compiler).text()
    done = subprocess.run(["git", "show", f"HEAD:{RECORD}"], cwd=headers.ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    before = done.stdout if done.returncode == 0 else ""
    gone = sorted(facts_of(before) - facts_of(text))
    if gone and before.startswith(f"interface {number()},"):
        print(*gone[:20], *(["..."] if len(gone) > 20 else []), sep="\n")
        print(f"interface: these lines of interface {number()} are gone ({len(gone)}), so compiled "
              f"programs no longer fit; raise BP_INTERFACE in {headers.VERSION} to {number() + 1}, "
              f"begin an entry in {CHANGES} with \"Interface {number() + 1}:\", and run this again")
        return 1
    with open(os.path.join(headers.ROOT, RECORD), "w", encoding="utf-8") as file:
        file.write(text)
    print(f"interface: recorded as number {number()} in {RECORD}")
    return 0


if __name__ == "__main__":
    sys.exit({"check": check, "record": record}[sys.argv[1]](sys.argv[2:]))
