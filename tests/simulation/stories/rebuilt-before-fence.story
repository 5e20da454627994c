# A daemon is about to fence a partition without a commit while the index is rebuilt with other parameters. The fence is
# not refused, because the rebuild has fenced the committed partitions only.

send 0 o knoll lagoon inlet jetty
settle
send 1 y amber birch cedar delta
run b until fence
freeze b
rebuild 2
run rebuild until complete
run rebuild 9
wake b
run b 6
settle
send 0 z amber birch cedar delta
