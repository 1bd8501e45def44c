"""Phases over shards that tell when they begin, and take long enough to be hit."""

import time

import survivor
from cellworth.valuers.shard_phases import ShardPhases

SECONDS = 0.1


class LoggedPhases(ShardPhases):
    """Rounds of values that a test can watch; the log's path stands in a file beside the rows."""

    def look(self, rows, prepared):
        with self._logged("look", rows.number, prepared.number):
            time.sleep(SECONDS)
            return super().look(rows, prepared)

    def settle(self, rows, prepared, *given):
        with self._logged("settle", rows.number, prepared.number):
            time.sleep(SECONDS)
            return super().settle(rows, prepared, *given)

    def _logged(self, *names):
        # Above the folder of rows is that of the run, and above that the test's.
        return survivor.logged(self.shards.folder.parents[1] / "log", "-".join(map(str, names)))
