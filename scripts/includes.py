#!/usr/bin/python3
"""Checks that each file that uses a name of the standard library includes its header, directly or
through our headers. The compiler does not check it if the prelude (scripts/mk/prelude.h) is
precompiled.

Prints a line for each missing include.
"""

import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("platform", "pinned_pool", "alloc", "transport", "apps", "tests")
INCLUDE = re.compile(r'^#include ([<"])([^>"]+)[>"]', re.MULTILINE)
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)

# The declarations of the prelude's headers, limited to names used in this tree.
HEADERS = {
    "algorithm": "std::(sort|stable_sort|find|find_if|any_of|all_of|none_of|count_if|fill|fill_n|"
                 "clamp|shuffle|lower_bound|upper_bound|reverse|remove_if|adjacent_find|transform|"
                 "is_sorted|max_element|min_element|nth_element|generate)|std::ranges::[a-z_]+",
    "array": "std::(array|to_array)",
    "atomic": "std::(atomic|atomic_ref|atomic_thread_fence|atomic_signal_fence|memory_order_[a-z]+|"
              "atomic_flag)",
    "bit": "std::(bit_cast|bit_ceil|bit_floor|bit_width|countl_zero|countr_zero|has_single_bit|"
           "popcount|endian)",
    "cerrno": "errno",
    "charconv": "std::(from_chars|to_chars)",
    "cinttypes": "(PRI[dux](8|16|32|64|PTR)|SCN[dux](8|16|32|64))",
    "csignal": "(SIG[A-Z]{3,}|sigaction|sigset_t)",
    "cstddef": "std::(byte|max_align_t)",
    "cstdint": "(u?int(8|16|32|64|ptr)_t|U?INT(8|16|32|64)_MAX)",
    "cstdio": "std::(printf|fprintf|snprintf|vsnprintf|fputs|puts|fflush|FILE|fopen|fclose|perror|"
              "sscanf|fgets|setvbuf)",
    "cstdlib": "std::(getenv|abort|exit|_Exit|atexit|strtoul|strtoull|strtol|free|malloc|calloc|"
               "realloc|aligned_alloc)",
    "cstring": "std::(memcpy|memset|memcmp|memmove|memchr|strlen|strcmp|strncmp|strchr|strrchr|"
               "strstr|strerror)",
    "ctime": "(timespec|std::time)",
    "deque": "std::deque",
    "functional": "std::(function|hash|less|greater|bind|ref|cref)",
    "map": "std::(map|multimap)",
    "memory": "std::(unique_ptr|shared_ptr|make_unique|make_shared|addressof|construct_at|"
              "destroy_at|default_delete)",
    "new": "std::(nothrow|launder|align_val_t|bad_alloc)",
    "optional": "std::(optional|nullopt)",
    "random": "std::(mt19937|mt19937_64|uniform_int_distribution|random_device)",
    "span": "std::(span|as_bytes|as_writable_bytes|dynamic_extent)",
    "string": "std::(string|to_string|char_traits)",
    "string_view": "std::string_view",
    "thread": "std::(thread|this_thread|jthread)",
    "vector": "std::vector",
}
USES = {header: re.compile(rf"(?<![\w:.>])(?:{names})\b") for header, names in HEADERS.items()}
# Other headers with the same declarations, among them C's.
ALSO = {
    "algorithm": {"ranges"}, "cerrno": {"errno.h"}, "csignal": {"signal.h", "sys/signalfd.h"},
    "cinttypes": {"inttypes.h"}, "functional": {"memory", "string_view"},
    "cstdint": {"stdint.h", "cinttypes"}, "cstddef": {"cstring"}, "memory": {"new"},
    "ctime": {"time.h", "sys/stat.h", "poll.h"}, "string_view": {"string"},
}


@functools.cache
def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def walk_includes(path):
    """The headers that `path` includes, directly or indirectly: ours, and the system's."""
    found, seen, open_ = set(), set(), [path]
    while open_:
        one = open_.pop()
        if one in seen:
            continue
        seen.add(one)
        for kind, name in INCLUDE.findall(text_of(one)):
            if kind == "<":
                found.add(name)
                continue
            for base in ("", pathlib.Path(one).parent):  # C headers include their neighbours by
                                                         # bare name
                if (ROOT / base / name).is_file():
                    open_.append(str(pathlib.Path(base, name)))
                    break
    return seen, found


def headers_of_ours(path):
    return walk_includes(path)[0]


@functools.cache
def headers_below(path):
    return walk_includes(path)[1]


def main():
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            path = str(file.relative_to(ROOT))
            # Files of tests/install include installed headers.
            if file.suffix not in (".cc", ".h") or path.startswith("tests/install/"):
                continue
            code = COMMENT_OR_TEXT.sub("", text_of(path))
            below = headers_below(path)
            for header, uses in USES.items():
                used = uses.search(code)
                if used and not below & ({header} | ALSO.get(header, set())):
                    print(f"{path}: <{header}> for {used.group(0)}")


if __name__ == "__main__":
    main()
