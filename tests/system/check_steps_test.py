"""`make check` with tests that fail (scripts/check_steps.sh), with made-up steps."""

import os
import subprocess

from harness import expect, expect_in, expect_true, test

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# A runner of two tests. `b` fails in the first $1 runs. Each run appends the requested tests to the
# file `asked`.
RUNNER = """#!/bin/bash
echo "asked for: ${ONLY_TESTS:-all}" >> asked
runs=$(grep -c . asked)
if [ "$runs" -gt "$1" ]; then
  echo "2 passed, 0 failed, 1 skipped"
else
  printf 'failed  b\\nthe reason\\n'
  [ "$2" = unnamed ] || echo "failed: b"
  echo "1 passed, 1 failed, 1 skipped"
  exit 1
fi
"""


def check(box, *steps, listed="", before=""):
    """Runs the steps. Returns the outcome, and the tests requested from the runner."""
    folder = box.path("check")
    os.makedirs(folder, exist_ok=True)
    for name, text in (("runner", RUNNER), ("flaky.txt", listed), ("asked", "")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    script = "\n".join(["set -uo pipefail", f"source {ROOT}/scripts/check_steps.sh", before,
                        *steps, "finish_steps"])
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True,
                          timeout=60, env={"PATH": os.environ["PATH"], "CHECK_LOGS": "logs",
                                           "CHECK_FLAKY": "flaky.txt"})
    with open(os.path.join(folder, "asked"), encoding="utf-8") as file:
        return done, file.read().splitlines()


def last_line(done):
    return done.stdout.splitlines()[-1]


@test()
def a_failure_stays_one(box):
    """A test that fails again when it runs alone fails the check."""
    done, asked = check(box, "step one bash runner 9", "step two true")
    expect(last_line(done), "2 passed, 1 failed, 1 skipped", "the last line")
    expect(done.returncode, 1, "the exit code")
    expect_in("failed: one: b\n", done.stdout, "the name of what failed")
    expect(asked, ["asked for: all", "asked for: b"], "what ran")


@test()
def a_flaky_test_is_told(box):
    """A test that passes when it runs again is counted as passed, and printed as flaky."""
    done, asked = check(box, "step one bash runner 1")
    expect(last_line(done), "2 passed, 0 failed, 1 skipped", "the last line")
    expect(done.returncode, 0, "the exit code")
    expect_in("flaky: one b: failed, and passed when it ran again, alone\nflaky: 1;", done.stdout,
              "the name of what is flaky")
    expect_in("the reason", done.stdout, "what it printed when it failed")
    expect(asked, ["asked for: all", "asked for: b"], "what ran")
    expect_in(", last time ", check(box, "step one bash runner 0")[0].stdout, "the time before")


@test()
def a_step_without_names_runs_again_as_a_whole(box):
    done, asked = check(box, "step one bash runner 1 unnamed")
    expect(last_line(done), "2 passed, 0 failed, 1 skipped", "the last line")
    expect_in("flaky: one: failed, and passed", done.stdout, "the name of the step")
    expect(asked, ["asked for: all", "asked for: all"], "what ran")


@test()
def a_flaky_test_of_the_list_fails(box):
    done, _ = check(box, "step one bash runner 1", listed="one b: the disk is slow\n")
    expect(last_line(done), "1 passed, 1 failed, 1 skipped", "the last line")
    expect_in("failed: one b: is flaky, and was so before", done.stdout, "why it fails")
    done, _ = check(box, "step one bash runner 1", listed="one bb: another\ntwo one b: one more\n")
    expect(done.returncode, 0, "the exit code, where others are on the list")


@test()
def many_failures_are_none_of_chance(box):
    """More than three failures are not run again."""
    done, asked = check(box, *(f"step s{i} bash runner 9" for i in range(4)))
    expect(last_line(done), "4 passed, 4 failed, 4 skipped", "the last line")
    expect(len(asked), 4, "runs")
    expect_true("flaky" not in done.stdout, f"nothing is told to be flaky:\n{done.stdout}")


@test()
def a_step_that_is_killed_fails(box):
    done, _ = check(box, "step one bash -c 'kill -9 $$'", "step two true")
    expect(last_line(done), "1 passed, 1 failed, 0 skipped", "the last line")
    expect(done.returncode, 1, "the exit code")
