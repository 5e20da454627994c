# Without the rule "entry first" this history ends badly.
partitions 1
daemons a

send 0 d1 knoll knoll jetty amber
append 0 d1 fjord
send 0 d1 knoll knoll jetty amber
send 0 d2 knoll knoll jetty amber grove amber
