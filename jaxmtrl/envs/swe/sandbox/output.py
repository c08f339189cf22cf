"""What is kept of a command's output: its beginning and its end, in bounded memory."""

from __future__ import annotations


class Output:
    """Takes in bytes as they come; keeps the first and the last half of `kept`."""

    def __init__(self, kept: int):
        self._head_size = kept // 2
        self._tail_size = kept - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0  # bytes taken in

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._tail_size:  # seldom, so that many small pieces do not cost a copy each
            del self._tail[: -self._tail_size]

    @property
    def elided(self) -> int:
        """Bytes between head and tail that are gone."""
        return self.total - len(self.kept)

    @property
    def kept(self) -> bytes:
        return bytes(self._head + self._tail[max(0, len(self._tail) - self._tail_size) :])
