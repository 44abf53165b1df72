#!/usr/bin/python3
"""Writes the tables of keys, counters and methods in docs/configuration.md, docs/counters.md and
docs/control.md, as the program prints them with --markdown.

    scripts/tables.py build/release/bedplate

Rows stay in the table where they are; a new row follows the row before it in the program's order.
"""
import pathlib
import subprocess
import sys
import tempfile

KEYS = "| key | type | default | range | what it does |"
COUNTERS = "| counter | kind | unit | what it counts |"
METHODS = "| method | parameters | answers | what it does |"


def printed(program, command, *words):
    """The rows that the program prints, by their first cell."""
    answer = subprocess.run([program, command, *words, "--markdown"], text=True, check=True,
                            stdout=subprocess.PIPE)
    return {name_of(row): row for row in answer.stdout.splitlines() if row.startswith("| `")}


def name_of(row):
    return row.split(" | ", 1)[0]


def all_counters(program):
    """The counters of the runtime, of the demos, and of what the demos leave out."""
    demo = pathlib.Path("apps/demo.toml").read_text()
    with tempfile.TemporaryDirectory() as folder:
        volume = pathlib.Path(folder, "volume")
        volume.write_bytes(bytes(4096))
        with_tls = 'tls_certificate = "/certificate"\ntls_key = "/key"\n'  # nobody reads them
        kvd = pathlib.Path("apps/demo-kvd.toml").read_text()
        texts = [demo.replace("[blockd]", f"[blockd]\n{with_tls}", 1) + f"[http]\n{with_tls}",
                 kvd.replace("[kvd]", f"[kvd]\nmax_connections = 16\n{with_tls}", 1),
                 demo + f'[[blockd.volume]]\nname = "disk"\nfile = "{volume}"\n']
        paths = []
        for number, text in enumerate(texts):
            paths.append(pathlib.Path(folder, f"{number}.toml"))
            paths[-1].write_text(text)
        rows = printed(program, "counters")
        for path in ("apps/demo.toml", *paths, "apps/demo-kvd.toml", "apps/demo-relay.toml"):
            rows |= printed(program, "counters", str(path))
    return rows


def rewritten(lines, header, rows):
    """`lines` with the tables below each `header` made of `rows`."""
    before = dict(zip(list(rows)[1:], rows))  # each row's predecessor
    there = {name_of(line) for line in lines} & set(rows)
    new = [name for name in rows if name not in there]
    result, in_table = [], False
    for line in lines:
        in_table = line == header or (in_table and line.startswith("|"))
        if not in_table or line == header or line.startswith("|---"):
            result.append(line)
            continue
        name = name_of(line)
        while name in rows:
            result.append(rows[name])
            name = next((each for each in new if before.get(each) == name), None)
            if name in new:
                new.remove(name)
    if new:
        sys.exit(f"tables.py: these rows have no table with {header!r}: " + ", ".join(new))
    return result


def write(path, header, rows):
    path = pathlib.Path(path)
    lines = path.read_text().splitlines()
    if header not in lines:
        sys.exit(f"tables.py: {path} has no table with {header!r}")
    path.write_text("\n".join(rewritten(lines, header, rows)) + "\n")


def main():
    program = sys.argv[1]
    write("docs/configuration.md", KEYS, printed(program, "keys"))
    write("docs/counters.md", COUNTERS, all_counters(program))
    write("docs/control.md", METHODS, printed(program, "ctl", "--list"))


if __name__ == "__main__":
    main()
