# The buckets are full of copies outside the window; a copy is found among the latest ones.
partitions 1
daemons a
window_s 3600
bucket_cap 3

send 0 d3 cedar heath cedar amber ember lagoon
clock 7200
aged 7200 0 d4 cedar heath cedar amber ember lagoon
send 0 d8 cedar heath cedar amber ember lagoon
send 0 d9 cedar heath cedar amber ember lagoon
