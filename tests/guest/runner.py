"""Runs tests that are functions, for scripts that boot machines."""

import contextlib
import os
import signal
import sys
import time
import traceback

# The limit of one test: longer than any guest's own limit, so that a late guest is told as that.
TEST_SECONDS = 1300
# Since the epoch; a test that is not done by then has failed. A script that runs several such
# programs sets it.
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
    """Raises Late in its `with` after so many seconds; of nested limits, the first to end counts.

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
    """Once more where QEMU crashed. Debian's 7.2 does so in one boot of some hundreds with NVMe
    drives, before the guest's first line (a null pointer at a0)."""
    try:
        test()
    except Crashed as crash:
        print(f"again {test.__name__}: {crash}", flush=True)
        test()


def run_tests(tests):
    """Runs those whose name has one of the program's arguments in it, and none of those after a
    minus; without any, all.

    With names in ONLY_TESTS, a line each, just these run. Each gets a line, and at the end there is
    `N passed, N failed, N skipped`, whatever happened in between; before it `failed: NAME` for each
    that failed. None takes longer than TEST_SECONDS, and nothing goes on after CHECK_END.
    Returns the exit code: 1 when anything failed.
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
