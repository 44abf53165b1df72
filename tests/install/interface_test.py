#!/usr/bin/python3
"""Checks the recorded interface (scripts/install/interface.py), and what the check says of changes.

    tests/install/interface_test.py [PATTERN]

The changes are made to a small tree with one public header. The last line is `N passed, N failed, N
skipped`; the exit code is 1 if anything failed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = "shelf.h"
SHELF = """
#pragma once

#include "platform/version.h"

namespace bedplate {

enum class Wood : unsigned char { kOak, kPine = 3 };

inline constexpr int kBoardCountMax = 12;

Wood wood_of(const char* name, ...);

class Shelf {
 public:
  virtual ~Shelf() = default;
  virtual const char* name() const noexcept = 0;
  virtual void turn() noexcept {}
  int board_count() const noexcept { return slow_count(); }
  void add(int board_count);

 private:
  int slow_count() const;
  void paint();

  CompiledAgainst compiled_against_;
  short board_count_ = 0;
};

}  // namespace bedplate
"""
RECORDED = """\
struct CompiledAgainst: 8 bytes, 2 members (platform/version.h)
  at 0: unsigned int interface_number
  at 4: unsigned int version

class Shelf: 24 bytes, 2 members, 3 virtual functions (shelf.h)
  at 8: private CompiledAgainst compiled_against_
  at 16: private short int board_count_
  virtual: ~Shelf()
  virtual 2: const char* name() const
  virtual 3: void turn()
  void add(int)
  int slow_count() const

enum Wood: unsigned char (shelf.h)
  kOak = 0
  kPine = 3

functions and constants (shelf.h)
  kBoardCountMax = 12
  Wood wood_of(const char*, ...)
"""
RECORD = "scripts/install/interface.txt"
VERSION = "platform/version.h"
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")


def expect(seen, expected, what):
    if seen != expected:
        raise AssertionError(f"{what}: {seen!r} instead of {expected!r}")


class Tree:
    """A tree with a recorded and committed interface 7."""

    def __init__(self, directory):
        self.directory = directory
        for path in (VERSION, "scripts/install/headers.py", "scripts/install/interface.py"):
            os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), self.path(path))
        with open(self.path("scripts/install/headers.py"), "a", encoding="utf-8") as file:
            file.write(f'\nALL_ROOTS, C_HEADERS = ("{HEADER}",), ()\n')
        with open(self.path(HEADER), "w", encoding="utf-8") as file:
            file.write(SHELF)
        self.raise_number(7)
        self.told("record", 0)
        self.commit()

    def path(self, path):
        return os.path.join(self.directory, path)

    def edit(self, path, pattern, text):
        with open(self.path(path), encoding="utf-8") as file:
            edited, count = re.subn(pattern, text, file.read(), flags=re.M)
        expect(count, 1, f"how often {path} has {pattern}")
        with open(self.path(path), "w", encoding="utf-8") as file:
            file.write(edited)

    def raise_number(self, number):
        self.edit(VERSION, r"^#define BP_INTERFACE \d+$", f"#define BP_INTERFACE {number}")
        with open(self.path("CHANGELOG.md"), "w", encoding="utf-8") as file:
            file.write(f"- Interface {number}: tests.\n")

    def commit(self):
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
            subprocess.run([*GIT, *words], cwd=self.directory, check=True)

    def told(self, command, expected_code):
        """Runs a command of interface.py. Returns its output."""
        done = subprocess.run(["/usr/bin/python3", self.path("scripts/install/interface.py"), command,
                               "g++", "-std=c++20", "-I."], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, cwd=self.directory, check=False)
        expect(done.returncode, expected_code, f"the exit code of {command}:\n{done.stdout}")
        return done.stdout


def expect_words(told, *words):
    for word in words:
        expect(word in told, True, f"whether it says {word!r}:\n{told}")


# ---- The tests ----


def the_recorded_interface_is_that_of_the_headers(_):
    done = subprocess.run(["make", "--no-print-directory", "check-interface"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if "skipped: " in done.stdout:
        return done.stdout.partition("skipped: ")[2].splitlines()[0]
    expect(done.returncode, 0, f"the exit code of make check-interface:\n{done.stdout}")
    return None


def the_record_tells_what_programs_rely_on(tree):
    tree.told("check", 0)
    with open(tree.path(RECORD), encoding="utf-8") as file:
        heading, _, text = file.read().partition("\n\n")
    expect(re.fullmatch(r"interface 7, as g\+\+ \d+, \w+ compiles it", heading) is not None, True,
           f"whether the heading is right: {heading}")
    expect(text, RECORDED, "the record")


def a_virtual_function_more_needs_another_number(tree):
    tree.edit(HEADER, r"^  virtual void turn", r"  virtual void lift() noexcept {}\n\g<0>")
    expect_words(tree.told("check", 1), "+  virtual 3: void lift()\n+  virtual 4: void turn()\n",
                 "+class Shelf: 24 bytes, 2 members, 4 virtual functions", "run `make interface`")
    expect_words(tree.told("record", 1), "class Shelf: 24 bytes, 2 members, 3 virtual functions\n",
                 "class Shelf: 24 bytes, 2 members, 3 virtual functions virtual 3: void turn()\n",
                 "raise BP_INTERFACE in platform/version.h to 8")
    tree.raise_number(8)
    tree.told("record", 0)
    tree.told("check", 0)


def a_member_in_a_gap_needs_another_number(tree):
    tree.edit(HEADER, r"^  short board_count_ = 0;$", r"\g<0>\n  bool is_tall_ = false;")
    expect_words(tree.told("record", 1), "class Shelf: 24 bytes, 2 members")


def another_result_needs_another_number(tree):
    tree.edit(HEADER, r"^  void add\(int board_count\);$", r"  int add(int board_count);")
    expect_words(tree.told("record", 1), " void add(int)\n")


def a_function_more_needs_no_other_number(tree):
    tree.edit(HEADER, r"^Wood wood_of", r"void saw(Wood wood);\n\g<0>")
    expect_words(tree.told("check", 1), "+  void saw(Wood)\n")
    tree.told("record", 0)
    tree.told("check", 0)


def inline_and_private_functions_are_no_part_of_it(tree):
    tree.edit(HEADER, r"^  void add", r"  bool is_empty() const { return board_count_ == 0; }\n\g<0>")
    tree.edit(HEADER, r"^  void paint\(\);$", "  int paint(int color);")
    tree.told("check", 0)


def a_class_of_debug_builds_is_refused(tree):
    tree.edit(HEADER, r"^  short board_count_ = 0;$", r"\g<0>\n#if BP_DEBUG\n  int mark_ = 0;\n#endif")
    expect_words(tree.told("check", 1), "class Shelf: 24 bytes, 2 members, 3 virtual functions\n",
                 "debug builds have these lines otherwise")


def a_number_without_an_entry_is_refused(tree):
    with open(tree.path("CHANGELOG.md"), "w", encoding="utf-8") as file:
        file.write("- Interface 77: another.\n")
    expect_words(tree.told("check", 1), "begin one with: Interface 7:")


def another_compiler_skips_the_check(tree):
    tree.edit(RECORD, r"as g\+\+ \d+,", "as g++ 3,")
    expect_words(tree.told("check", 0), "skipped: the interface is recorded as g++ 3, ",
                 "0 passed, 0 failed, 1 skipped")


TESTS = (the_recorded_interface_is_that_of_the_headers, the_record_tells_what_programs_rely_on,
         a_virtual_function_more_needs_another_number, a_member_in_a_gap_needs_another_number,
         another_result_needs_another_number, a_function_more_needs_no_other_number,
         inline_and_private_functions_are_no_part_of_it, a_class_of_debug_builds_is_refused,
         a_number_without_an_entry_is_refused, another_compiler_skips_the_check)


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    only = os.environ.get("ONLY_TESTS", "").splitlines()
    counts, failed = {"passed": 0, "failed": 0, "skipped": 0}, []
    with tempfile.TemporaryDirectory(prefix="bedplate-") as home:
        first = Tree(os.path.join(home, "first"))
        for test in TESTS:
            name = test.__name__
            if pattern not in name or only and name not in only:
                continue
            shutil.copytree(first.directory, os.path.join(home, name))
            tree = Tree.__new__(Tree)
            tree.directory = os.path.join(home, name)
            try:
                skipped = test(tree)
                counts["skipped" if skipped else "passed"] += 1
                print(f"skipped: {skipped}" if skipped else f"passed  {name}", flush=True)
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                counts["failed"] += 1
                failed.append(name)
                print(f"failed  {name}\n{error}", flush=True)
    for name in failed:
        print(f"failed: {name}")
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
