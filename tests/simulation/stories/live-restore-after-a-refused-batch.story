# A daemon whose batch was refused remembers no call to the index, until its next batch is compared.
daemons a b c

run a 7
send 0 d0 grove
save s3
save s6
settle
send 0 d0 knoll
save s8
send 0 d1 amber
settle
send 0 d1 heath
back s3 live
run a 3
send 0 d2 grove delta heath fjord jetty amber fjord
back s8
settle
send 1 d0 lagoon grove delta heath fjord jetty amber fjord
back s6 live

