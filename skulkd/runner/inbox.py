"""The way in: one thread reads messages from the pipe and puts them in order for the main one.

The end of the pipe means that the supervisor is gone. Orders of rank 0 join the same queue, so
that a rank with nothing to do sleeps in one place.
"""

import queue
import select
import threading
from collections.abc import Callable

from skulkd.runner.framing import FrameError, FrameReader
from skulkd.runner.orders import Order, from_json
from skulkd.runner.protocol import Ack, Cancel, Configure, ProtocolError, RunTask, decode_to_runner

Message = Configure | RunTask | Cancel | Order


class Inbox:
    """Acknowledgements do not queue: they go to `on_ack` at once, from the reading thread."""

    def __init__(
        self,
        fd: int,
        *,
        on_ack: Callable[[int], None],
        on_end: Callable[[], None],
        on_broken: Callable[[str], None],
    ) -> None:
        self._reader = FrameReader(fd)
        self._unread = select.poll()
        self._unread.register(fd, select.POLLIN)
        self._on_ack = on_ack
        self._on_end = on_end
        self._on_broken = on_broken
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="inbox", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self) -> Message:
        """The next message, however long it takes: an idle runner sleeps here."""
        return self._messages.get()

    def wait_briefly(self, seconds: float) -> Message | None:
        """The next message, if it comes soon.

        What lies in the pipe has come: on a busy machine the reading thread gets its turn late.
        """
        while True:
            try:
                return self._messages.get(timeout=seconds)
            except queue.Empty:
                # Not for a pipe that has only ended: nobody would ever read that.
                if not any(event & select.POLLIN for _, event in self._unread.poll(0)):
                    return None

    def order(self, content: bytes) -> None:
        """Queue an order of rank 0, which came another way."""
        self._messages.put(from_json(content))

    def arrived(self) -> list[Message]:
        """What is here now, without waiting."""
        messages: list[Message] = []
        while not self._messages.empty():
            messages.append(self._messages.get_nowait())
        return messages

    def _run(self) -> None:
        try:
            while frames := self._reader.read():
                for frame in frames:
                    message = decode_to_runner(frame)
                    if isinstance(message, Ack):
                        self._on_ack(message.sequence)
                    else:
                        self._messages.put(message)
        except (FrameError, ProtocolError) as error:
            self._on_broken(str(error))
        except OSError:
            self._on_end()
        else:
            self._on_end()
