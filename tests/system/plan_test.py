"""`bedplate plan` for groups: the memory of configured groups, and what-if questions."""

import json

from harness import KIB, MIB, expect, expect_in, expect_true, test, to_toml

LAZY = ["--fifo", "lazy", "--peers"]
MESH = ["--fifo", "mesh", "--peers"]
# name: (arguments of plan, words of the message)
REFUSALS = {
    "no_layout": ([*LAZY[:1]], "--fifo needs a value"),
    "unknown_layout": (["--fifo", "ring", "--peers", "4"],
                       "reading --fifo ring: there is no such layout; write --fifo lazy or"),
    "exchange": (["--fifo", "exchange", "--peers", "2"], "there is no such layout"),
    "no_peers": (["--fifo", "mesh"], "missing --peers; set the number of members"),
    "nobody": ([*MESH, "0"], "members is 0; members may be 1..2047"),
    "crowd": ([*MESH, "2048"], "reading --peers 2048: members is 2048; members may be 1..2047"),
    "no_number": ([*MESH, "many"], "reading --peers many: this is not a number; write digits"),
    "negative": ([*MESH, "-4"], "this is not a number"),
    "size_of_peers": ([*MESH, "4KiB"], "this is not a number; write digits"),
    "no_size": ([*MESH, "4", "--eager", "4 KB"], "this is not a number; write a size"),
    "huge": ([*MESH, "4", "--loans", "4294967296"], "it is too large"),
    "three_entries": ([*MESH, "4", "--entries", "3"],
                      "entries is 3; entries may be 2..32768, a power of two"),
    "eager": ([*LAZY, "4", "--eager", "8192"], "eager_bytes may be 64..8191"),
    "eager_region": ([*MESH, "4", "--eager", "64"], "eager_bytes times eager_count must be at least 192"),
    "eager_count": ([*LAZY, "4", "--eager-count", "0"], "eager_count may be 1..32"),
    "boxes": ([*LAZY, "4", "--boxes", "1048577"], "boxes may be 0..1048576"),
    "box_bytes": ([*LAZY, "4", "--box-bytes", "512"], "box_bytes may be 1024..65536"),
    "loans": ([*LAZY, "4", "--loans", "0"], "loans may be 1..65535"),
    "line": ([*LAZY, "4", "--line-bytes", "32"], "line_bytes may be 64..128"),
    "boxes_of_mesh": ([*MESH, "4", "--boxes", "4"],
                      "reading --boxes: it has no meaning in the layout mesh"),
    "box_bytes_of_mesh": ([*MESH, "4", "--box-bytes", "4096"], "no meaning in the layout mesh"),
    "threads_of_lazy": ([*LAZY, "4", "--threads"], "no meaning in the layout lazy"),
    "configuration_too": ([*LAZY, "4", "some.toml"], "--fifo takes no configuration: some.toml"),
    "peers_alone": (["--peers", "4"], "--peers needs --fifo"),
    "nothing": ([], "missing CONFIG or --fifo"),
}


def ask(box, *arguments):
    return json.loads(box.bedplate("plan", "--json", *arguments).stdout)


def part(answer, name):
    return next(row for row in answer["parts"] if row["part"] == name)


@test(case=REFUSALS)
def refuses(box, case):
    arguments, wanted = REFUSALS[case]
    done = box.bedplate("plan", *arguments, expect_code=2)
    expect(done.stdout, "", "the standard output")
    expect_in(wanted, done.stderr, "standard error")
    expect(len(done.stderr.splitlines()), 1, "the lines on standard error")


@test(layout=["lazy", "mesh"], peers=["1", "2", "3", "64", "1024", "2047"])
def answers_add_up(box, layout, peers):
    answer = ask(box, "--fifo", layout, "--peers", peers)
    expect((answer["layout"], answer["members"]), (layout, int(peers)), "what was asked")
    for row in answer["parts"]:
        expect(row["count"] * row["bytes_each"], row["bytes"], f"bytes of {row['part']}")
    total = sum(row["bytes"] for row in answer["parts"])
    expect(answer["total_bytes"], total, "total_bytes")
    expect(answer["bytes_per_member"], -(-total // int(peers)), "bytes_per_member")
    for paged in answer["in_pages"]:
        page = paged["page_bytes"]
        expect_true(total <= paged["bytes"] < total + page + 4 * KIB, f"whole pages: {paged}")
    text = box.bedplate("plan", "--fifo", layout, "--peers", peers).stdout
    for word in ["total", "for each member", str(total), *(row["part"] for row in answer["parts"])]:
        expect_in(word, text, "the answer as text")


@test()
def every_option_counts(box):
    """Each option changes the part that it names, by the right amount, and no other part."""
    lazy, mesh = ask(box, *LAZY, "8"), ask(box, *MESH, "8")
    expect(part(ask(box, *LAZY, "8", "--entries", "256"), "queues")["bytes"],
           2 * part(lazy, "queues")["bytes"], "twice the entries")
    expect(part(ask(box, *LAZY, "8", "--eager", "2KiB"), "eager regions")["bytes"],
           part(lazy, "eager regions")["bytes"] // 2, "half the eager bytes")
    expect(part(ask(box, *LAZY, "8", "--eager-count", "8"), "eager regions")["bytes"],
           2 * part(lazy, "eager regions")["bytes"], "twice the eager count")
    expect(part(ask(box, *LAZY, "8", "--boxes", "5"), "boxes")["bytes"], 5 * 4096, "five boxes")
    expect(part(ask(box, *LAZY, "8", "--box-bytes", "8192"), "boxes")["bytes"],
           2 * part(lazy, "boxes")["bytes"], "boxes of twice the bytes")
    expect(part(ask(box, *LAZY, "8", "--loans", "1024"), "returned loans")["bytes_each"], 1024,
           "a byte for each loan")
    expect(part(ask(box, *LAZY, "8", "--line-bytes", "128"), "wrappers")["bytes_each"], 256,
           "a line for the wrapper, and one for the card")
    threads = ask(box, *MESH, "8", "--threads")
    expect(part(threads, "heads and tails")["bytes_each"], 7 * 2 * 64, "lines of heads and tails")
    expect(part(mesh, "heads and tails")["bytes_each"], 64, "heads and tails side by side")
    expect(part(mesh, "queues")["bytes_each"], 7 * 128 * 8, "a lane for each other member")


@test()
def goals_of_1024_processes(box):
    """The limits that the layouts must meet, including page rounding."""
    for page in ask(box, *LAZY, "1024", "--eager", "4096")["in_pages"]:
        expect_true(page["bytes"] <= 64 * MIB, f"lazy: at most 64 MiB: {page}")
        expect_true(page["bytes"] <= 1024 * 64 * KIB, f"lazy: at most 64 KiB each: {page}")
    mesh = ask(box, *MESH, "1024", "--entries", "16", "--eager", "4096")
    for page in mesh["in_pages"]:
        expect_true(page["bytes"] <= 155_000_000, f"mesh: at most 155 MB: {page}")


def with_groups(box):
    configuration = box.configuration()
    configuration["group"] = [{"name": "slow", "members": 4, "publish_timeout_ms": 70},
                              {"name": "quick", "layout": "mesh", "members": 9, "entries": 16,
                               "eager_count": 1, "loans": 64}]
    configuration["process"] = [
        {"name": "worker", "user": "root", "group": "slow", "max_count": 3, "heap_bytes": "8 MiB"},
        {"name": "probe", "user": "nobody", "trusted": False, "max_count": 2}]
    return configuration


@test()
def configuration_agrees_with_the_question(box):
    """The same group by a file and by --fifo takes the same bytes, part by part."""
    config = box.write("groups.toml", to_toml(with_groups(box)))
    segments = {segment["owner"]: segment for segment in box.plan(config)["segments"]}
    questions = {"slow": [*LAZY, "4"], "quick": [*MESH, "9", "--entries", "16"]}
    tables = {carve["owner"]: carve["bytes"] for carve in segments["members"]["carves"]}
    for name, question in questions.items():
        answer = ask(box, *question)
        segment = segments[f"fifo:{name}"]
        expect(segment["group"]["parts"], answer["parts"][:-1], f"the parts of {name}")
        [carve] = segment["carves"]
        expect(carve["bytes"], sum(row["bytes"] for row in segment["group"]["parts"]),
               f"the carve of {name}")
        expect(tables[f"members:{name}"], part(answer, "members table")["bytes"],
               f"the members table of {name}")
    expect(segments["fifo:slow"]["group"]["publish_timeout_ms"], 70, "the time of slow")
    for owner in ("heap:worker.2", "exchange:probe.0", "exchange:probe.1"):
        expect_true(owner in segments, f"{owner} is planned")
    text = box.bedplate("plan", config).stdout
    for word in [*segments, *tables, "claims and tails", "heads and tails"]:
        expect_in(word, text, "the plan as text")
    expect(text.count("eager regions"), 2, "how often eager regions are shown")
    expect(max(map(len, text.splitlines())) <= 100, True, "lines of 100 columns at most")


@test()
def refuses_what_does_not_go_together(box):
    """Errors that only the whole plan shows: the message names the group or process, and a cure."""

    def refused(change, *words):
        configuration = with_groups(box)
        change(configuration)
        done = box.bedplate("plan", box.write("bad.toml", to_toml(configuration)), expect_code=2)
        for word in words:
            expect_in(word, done.stderr, "standard error")

    refused(lambda c: c["group"][0].update(members=3), "planning the group slow", "need 4 members",
            "has slots for 3", "to 4 or more")
    refused(lambda c: c["process"][0].update(read=["heap:nobody"]),
            "granting heap:nobody to the process worker", "no such segment", "heap:worker.0")
    refused(lambda c: c["process"][0].update(write=["heap"]), "only its owner may write it")
    refused(lambda c: c["process"][1].update(max_count=200), "a pool has at most 128",
            "lower max_count of the process probe")
    refused(lambda c: c["process"][0].update(heap_bytes="1 TiB"), "heap:worker.0 needs", "[pool] bytes")
