"""Tables that no machine holds: their rows lie in shards, valued shard by shard."""
