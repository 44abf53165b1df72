"""The one exception of this package."""

from __future__ import annotations


class Error(Exception):
    """A failure in the three parts of Bedplate's errors.

    `doing` is the operation, `answer` the reply of the system or of the peer, `cure` the advice;
    it is "" if there is none. `code` is the JSON-RPC code of a refused request of the control
    socket (docs/control.md), else None. str() is "doing: answer; cure".
    """

    def __init__(self, doing: str, answer: str, cure: str = "", code: int | None = None) -> None:
        super().__init__(doing, answer, cure, code)
        self.doing = doing
        self.answer = answer
        self.cure = cure
        self.code = code

    def __str__(self) -> str:
        text = f"{self.doing}: {self.answer}" if self.answer else self.doing
        return f"{text}; {self.cure}" if self.cure else text

    @classmethod
    def of(cls, doing: str, error: OSError, cure: str = "") -> Error:
        """The Error whose answer is the text of `error`."""
        return cls(doing, error.strerror or str(error), cure)
