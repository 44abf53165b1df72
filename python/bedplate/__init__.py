"""Bedplate from Python: the counters of an appliance, its control socket, and its pool.

    from bedplate import Control, counters, joined

`counters` and `Control` need nothing but the standard library. `joined` needs the shared object
that is installed beside it. docs/python.md describes the package.
"""

from .control import Control
from .error import Error

__all__ = ["Control", "Error"]
