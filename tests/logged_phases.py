"""ShardAlgorithm over shards that tell when they begin, and take long enough to be hit."""

import time

import survivor
from cellworth.knn.shard_tasks import KNNShardAlgorithm

SECONDS = 0.1


class LoggedAlgorithm(KNNShardAlgorithm):
    """Rounds of values that a test can watch; the log's path stands in a file beside the rows."""

    def count(self, rows, prepared):
        with self._logged("count", rows.number, prepared.number):
            time.sleep(SECONDS)
            return super().count(rows, prepared)

    def accumulate(self, rows, prepared, *given):
        with self._logged("accumulate", rows.number, prepared.number):
            time.sleep(SECONDS)
            return super().accumulate(rows, prepared, *given)

    def _logged(self, *names):
        # Above the folder of rows is that of the run, and above that the test's.
        return survivor.logged(self.shards.folder.parents[1] / "log", "-".join(map(str, names)))
