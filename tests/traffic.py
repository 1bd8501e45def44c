"""Bytes that a run reads, writes and sends, by step."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import cloudpickle
import psutil

from cellworth.runtime.workers import LazyAnswer, as_request


@contextmanager
def counting(executor):
    """Yield a dict that gets a Counter for each step of what the executor makes processes do.

    Read and written is what this process and all below it read from files and write to them, as the
    kernel counts it; sent is what the driver and workers of a cluster exchange, as it is pickled.
    """
    steps, start = {}, type(executor).start

    @contextmanager
    def count(self, work, title):
        step = steps.setdefault(title.partition(",")[0], Counter())
        with start(self, work, title) as pool:
            before = _count_files()
            if pool.keeps_answers:
                step["sent"] += _size(work)
                _watch(pool, step)
            yield pool
            step.update({name: n - before[name] for name, n in _count_files().items()})

    with mock.patch.object(type(executor), "start", count):
        yield steps


def _watch(pool, step):
    submit, wait = pool.submit, pool.wait_for_answers

    def count_requests(requests):
        for each in map(as_request, requests.values()):
            step["sent"] += _size(each.content)
            step["sent"] += sum(_size(i.load()) for i in each.inputs if i.handle is None)
        submit(requests)

    def count_answers(seconds=None):
        return [(number, _open(answer, step)) for number, answer in wait(seconds)]

    pool.submit, pool.wait_for_answers = count_requests, count_answers


def _open(answer, step):
    if not isinstance(answer, LazyAnswer):
        step["sent"] += _size(answer)
        return answer

    def load():
        loaded = answer.load()
        step["sent"] += _size(loaded)
        return loaded

    return replace(answer, load=load)


def _size(thing):
    return len(cloudpickle.dumps(thing))


def _count_files():
    found = Counter()
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        counted = process.io_counters()
        found.update(read=counted.read_chars, written=counted.write_chars)
    return found
