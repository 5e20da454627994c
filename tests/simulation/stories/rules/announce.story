# Without the rule "announce" this history ends badly.
daemons a

send 2 d2 lagoon heath amber cedar jetty fjord birch
run a 1
switch p5 2
send 1 d8 lagoon heath amber cedar jetty fjord birch
