# An index is prepared, and then the present one is rebuilt. It is left for the prepared index before it has committed a
# batch. A daemon that was frozen meanwhile returns to it.

partitions 1
daemons a

send 0 d0 amber birch cedar delta
run a 21
prepare p2 2
run prepare 100
rebuild 1
run rebuild 100
start a
freeze a
switch p2 2
start a
send 0 d3 jetty heath cedar heath amber knoll
run a 40
freeze a
send 0 d7 jetty heath cedar heath amber knoll
