"""Runs tests that are functions, for those who boot machines."""

import sys
import time
import traceback


class Failure(Exception):
    """What was seen and what was expected."""


class Skip(Exception):
    """What is missing."""


def run_tests(tests):
    """Runs those whose name has one of the program's arguments in it; without any, all.

    Each gets a line, and at the end there is `N passed, N failed, N skipped`, whatever happened in
    between. Returns the exit code: 1 when anything failed.
    """
    passed = failed = skipped = 0
    for test in tests:
        if sys.argv[1:] and not any(pattern in test.__name__ for pattern in sys.argv[1:]):
            continue
        begin = time.monotonic()
        try:
            test()
            passed += 1
            print(f"ok   {test.__name__} ({time.monotonic() - begin:.0f} s)", flush=True)
        except Skip as skip:
            skipped += 1
            print(f"skipped: {skip}: {test.__name__}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAIL {test.__name__}: {failure}", flush=True)
        except Exception:  # a defect of the test, or a machine that ended under it
            failed += 1
            print(f"FAIL {test.__name__}: {traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
