#!/usr/bin/python3
"""Checks that no class has more than 40 methods: one that has more is several classes (STYLE.md).

Counts the methods that a class of a tracked header declares: constructors, destructors, operators
and overloads, private ones too. Data, friends, using declarations and pointers to functions do not
count. Nested classes and structs are counted by themselves. A method that #if declares twice counts
twice.

Prints the largest class. If classes have too many methods, prints a line for each of them, and
fails.
"""

import re
import subprocess
import sys

from includes import ROOT

FOLDERS = ("platform", "pinned_pool", "alloc", "transport", "apps")
METHODS_MAX = 40
# Comments, literals including raw ones, and directives with their continuation lines.
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
                   r"(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                   re.DOTALL | re.MULTILINE)
TEMPLATE_HEAD = re.compile(r"\s*template\s*<")
TYPE_HEAD = re.compile(r"\s*(?P<kind>class|struct|union)\s+(?:(?:alignas\s*\([^()]*(?:\([^()]*\))?[^()]*\)|"
                       r"\[\[[^\]]*\]\])\s*)*(?P<name>[\w:]+)")
NO_METHOD = re.compile(r"\s*(?:friend|using|typedef|static_assert|enum|requires)\b")
ACCESS = re.compile(r"\s*(public|protected|private)\s*:(?!:)")
OPERATOR = re.compile(r"\boperator\b\s*(?:\(\s*\)|\[\s*\]|[^\w\s(]+|[\w:\s*&<>]+?)\s*(?=\()")


def without_angles(text):
    """`text` without the contents of template brackets, innermost first."""
    while True:
        less = re.sub(r"<(?!=)[^<>;{}]*>(?!=)", " ", text)
        if less == text:
            return text
        text = less


def method_name(head):
    """The name of the function of a class that `head`, up to the body or `;`, declares; None: it
    declares none. Operators are called "method"."""
    if NO_METHOD.match(head):
        return None
    head = re.sub(r"\[\[[^\]]*\]\]|\[[^\[\]]*\]|\balignas\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|"
                  r"\bexplicit\s*\((?:[^()]|\([^()]*\))*\)|\brequires\s*\((?:[^()]|\([^()]*\))*\)",
                  " ", OPERATOR.sub(" method", head))
    head = without_angles(head)
    at = head.find("(")
    # After '=' in a member's initialiser there may be a call; (*name) is a pointer to a function.
    name = re.search(r"(\w+)\s*$", head[:at]) if at > 0 else None
    if not name or "=" in head[:at] or head[at + 1:].lstrip().startswith("*") or \
            name[1] in ("decltype", "noexcept"):
        return None
    return name[1]


def skip_template(text, at):
    """The index after the template <...> heads at `at`, if any."""
    while match := TEMPLATE_HEAD.match(text, at):
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += {"<": 1, ">": -1}.get(text[at], 0)
            at = block_end(text, at) if text[at] == "(" else at + 1
    return at


def block_end(text, at):
    """The index after the block, or the parentheses, that opens at `at`."""
    depth = 0
    while at < len(text):
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            break
    return at


class Counter:
    """Counts the methods of all classes of one header."""

    def __init__(self, text):
        self.text = NOISE.sub(lambda match: '""' if match[0][0] in "R\"'" else " ", text)
        self.counts = []  # (name, count)
        self.methods = []  # (class, access, method)

    def declaration(self, at):
        """(head, the index of its '{' or ';'): parentheses and initialisers belong to the head."""
        begin = at
        while at < len(self.text) and self.text[at] not in "{};":
            at = block_end(self.text, at) if self.text[at] == "(" else at + 1
        return self.text[begin:at], at

    def scope(self, at, name, access="public"):
        """Counts in the scope from `at` to its '}'; returns the index after that. `name`: the
        scope's class; None: a namespace. `access`: at its beginning."""
        count = 0

        def add(head):
            nonlocal count
            if method := method_name(head):
                count += 1
                self.methods.append((name, access, method))
        while at < len(self.text):
            if match := ACCESS.match(self.text, at):
                access = match[1]
                at = match.end()
                continue
            at = skip_template(self.text, at)
            head, at = self.declaration(at)
            if at >= len(self.text) or self.text[at] == "}":
                break
            type_ = TYPE_HEAD.match(head)
            if self.text[at] == ";":
                add(head)
            elif re.match(r"\s*(?:inline\s+)?namespace\b", head) or head.strip() == "extern \"\"":
                at = self.scope(at + 1, None) - 1
            elif type_ and "(" not in without_angles(head[type_.end():]):
                inner = type_["name"] if name is None else f"{name}::{type_['name']}"
                is_class = type_["kind"] == "class"
                at = self.scope(at + 1, inner, "private" if is_class else "public") - 1
            else:
                at = self.body(head, at) - 1
                add(head)
            at += 1
        if name is not None:
            self.counts.append((name, count))
        return at + 1

    def body(self, head, at):
        """The index after the body, or initialiser, at '{'. A constructor's member initialisers
        come before its body."""
        is_list = re.search(r"\)[^()]*(?<!:):(?!:)", head) is not None and \
            method_name(head) is not None
        while True:
            at = block_end(self.text, at)
            if not is_list or not (more := re.match(r"\s*(,[^{;]*)?\{", self.text[at:])):
                return at
            at += more.end() - 1


def counted(text):
    """The Counter of a header's text."""
    counter = Counter(text)
    at = 0
    while at < len(counter.text):
        at = counter.scope(at, None)
    return counter


def counts_of(text):
    """[(class, number of methods)] of a header's text."""
    return counted(text).counts


def too_large(counts):
    return [entry for entry in counts if entry[2] > METHODS_MAX]


def check_itself():
    """Checks the counting, and that a class with one method too many is found."""
    text = """namespace a {
    template <typename T, typename = Less<(1 > 2)>> class Large final : public Base<T(int)> {
     public:
      explicit Large(int n) : x_{n}, y_(f({n})) { g(); }
      Large(const Large&) = delete; ~Large() { if (x_) { h(); } }
      Large& operator=(const Large&) = delete; void operator()(int) const; operator bool() const;
      static constexpr uint64_t kMax = max(1, 2); std::function<void(int)> f_ = {}; int z_ = g();
      void (*call_)(void*); friend void help(Large&); using Base<T>::help; int a_ = {1}, b_{2}, c_[sizeof(int)];
      struct Inner { int n = 1'000; bool is() const { return n < 2; } };
      enum class Kind { kOne, kTwo }; template <typename F> auto take(F f) -> decltype(f()) { f(); }
    """
    methods = " ".join(f"[[nodiscard]] int m{i}(int n = 0) noexcept;" for i in range(METHODS_MAX - 7))
    for more, complaints in (("", 0), ("void one_more();", 1)):
        counts = counts_of(text + methods + more + "}; }")
        assert ("Large::Inner", 1) in counts, counts
        assert ("Large", METHODS_MAX + complaints) in counts, counts
        assert len(too_large([("text", *count) for count in counts])) == complaints


def main():
    check_itself()
    files = subprocess.run(["git", "ls-files", *(f"{folder}/*.h" for folder in FOLDERS)], cwd=ROOT,
                           check=True, capture_output=True, text=True).stdout.split()
    counts = [(file, *count) for file in files if (ROOT / file).is_file()
              for count in counts_of((ROOT / file).read_text(encoding="utf-8"))]
    counts.sort(key=lambda entry: -entry[2])
    if "--all" in sys.argv:
        print(*(f"{count} {file} {name}" for file, name, count in counts), sep="\n")
        return 0
    for file, name, count in too_large(counts):
        print(f"{file}: {name} has {count} methods, at most {METHODS_MAX} are allowed")
    if not too_large(counts):
        print("the largest class: {1} has {2} methods ({0})".format(*counts[0]))
    return int(bool(too_large(counts)))


if __name__ == "__main__":
    sys.exit(main())
