"""Runs tests that are functions, for scripts that boot machines."""

import contextlib
import os
import signal
import sys
import time
import traceback

# The limit of one test: longer than any guest's own limit, so that a late guest is reported as
# late.
TEST_SECONDS = 1300
# In seconds since the epoch: a test that is not done by then fails. Set by a script that runs
# several such programs.
CHECK_END = float(os.environ.get("CHECK_END", "inf"))


class Failure(Exception):
    """A wrong result, with the expected one."""


class Late(Failure):
    """A test or program that did not end in time."""


class Crashed(Failure):
    """QEMU itself was ended by a signal: a guest can do that only through a defect of QEMU's."""


class Skip(Exception):
    """The test cannot run here; the text says what is missing."""


@contextlib.contextmanager
def limit(seconds):
    """Raises Late inside the `with` after `seconds`. The first of nested limits to end counts.

    Only in the main thread. Late ends a wait at once: subprocess.run kills its program.
    """
    def late(*_):
        raise Late(f"no end after {seconds:.0f} s")

    begin = time.monotonic()
    outer = signal.signal(signal.SIGALRM, late)
    left = signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))[0]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begin), 0.001))


def told(error):
    """The text of `error`, with the notes added on its way: a machine's console."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def run(test):
    """Runs the test, and once more if QEMU crashed. Debian's 7.2 crashes in one of some hundred
    boots with NVMe drives, before the guest's first line (a null pointer at a0)."""
    try:
        test()
    except Crashed as crash:
        print(f"again {test.__name__}: {crash}", flush=True)
        test()


def run_tests(tests):
    """Runs the tests whose name has one of the program's arguments in it, without those that an
    argument after a minus excludes; without arguments, all.

    If ONLY_TESTS has names, one per line, only these run. Each test prints a line. At the end
    `failed: NAME` is printed for each failed test, and then `N passed, N failed, N skipped`, even
    after an interruption. No test takes longer than TEST_SECONDS, and nothing runs after CHECK_END.
    Returns the exit code: 1 if a test failed.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # machines end with their `with`
    passed = skipped = 0
    failed = []
    only = os.environ.get("ONLY_TESTS", "").splitlines()
    left_out = [word[1:] for word in sys.argv[1:] if word.startswith("-")]
    chosen = [word for word in sys.argv[1:] if not word.startswith("-")] or [""]
    for word in chosen + left_out:
        if not any(word in test.__name__ for test in tests):
            sys.exit(f"no test has {word} in its name")
    for test in tests:
        if not any(word in test.__name__ for word in chosen):
            continue
        if any(word in test.__name__ for word in left_out):
            continue
        if only and test.__name__ not in only:
            continue
        begin = time.monotonic()
        try:
            left = CHECK_END - time.time()
            if left <= 0:
                raise Late("not begun: the time for all is over; see CHECK_SECONDS in the Makefile")
            with limit(min(TEST_SECONDS, left)):
                run(test)
            passed += 1
            print(f"ok   {test.__name__} ({time.monotonic() - begin:.0f} s)", flush=True)
        except Skip as skip:
            skipped += 1
            print(f"skipped: {skip}: {test.__name__}", flush=True)
        except Failure as failure:
            failed.append(test.__name__)
            print(f"FAIL {test.__name__}: {told(failure)}", flush=True)
        except Exception:  # a defect of the test, or a machine that ended under it
            failed.append(test.__name__)
            print(f"FAIL {test.__name__}: {traceback.format_exc()}", flush=True)
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped")
    return 1 if failed else 0
