# Without the rule "claim" this history ends badly.
daemons a

send 1 d0 lagoon jetty cedar ember birch lagoon birch
append 1 d0 knoll
send 0 d2 lagoon jetty cedar ember birch lagoon birch
