"""The process of one logger: events come as lines of JSON, and the last thing it says is `done`, or
what went wrong.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading

from clsweep.catalog.rows import Row
from clsweep.cluster.loggers.sinks import Sink, sink_of

ORPHANED_S = 60.0  # to finish once nobody writes any more


def main() -> None:
    """Log until the input ends."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the clients print is nobody's
    events: queue.Queue[Row | None] = queue.Queue()
    threading.Thread(target=_read, args=(events,), daemon=True).start()
    said, code, about = "done", 0, json.loads(sys.argv[1])
    try:
        sink = sink_of(about)
        while (event := events.get()) is not None:
            take(sink, event)
        sink.close()
    except BaseException as error:
        text = str(error).strip() or "no reason given"
        said, code = f"{type(error).__name__}: {text.splitlines()[0]}", 1
        if isinstance(error, ImportError):
            said += f". pip install 'clsweep[{about['logger']}]' brings its client"
    print(said, file=answer, flush=True)
    os._exit(code)  # a client's threads and exit handlers may hang


def take(sink: Sink, event: Row) -> None:
    """Pass one event on."""
    kind = event["event"]
    if kind == "begin":
        sink.begin(event)
    elif kind == "epoch":
        sink.epoch(event["trial_id"], event["values"])
    else:
        sink.end(event["trial_id"], event["values"], event["status"], event["error"])


def _read(events: queue.Queue[Row | None]) -> None:
    for line in sys.stdin.buffer:
        events.put(json.loads(line))
    events.put(None)
    timer = threading.Timer(ORPHANED_S, os._exit, (1,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
