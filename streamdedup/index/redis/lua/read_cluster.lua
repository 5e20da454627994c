-- Read the set of a cluster.
-- include: _cluster_sets
-- KEYS  guard (index/redis/keys.py)
-- ARGV  prefix of the keys of sets, prefix of the keys of entries, the number that names the cluster (8 bytes)
-- Returns the counts of the cluster and the members of the set, joined (_cluster_sets.lua).
local set = read(ARGV[1] .. ARGV[3])
add_first(set, ARGV[2], ARGV[3])
return counts(set, ARGV[3]) .. set.members
