# A static member that was frozen and replaced wakes up before its fence: it takes the topic for one that was created
# again, because the end that it knows lies below the high-water mark that its successor has raised.
static True

start b
run b until read_entries
send 0 d0 grove
run b- 6
start b
send 0 d2 grove
run b until clear
send 0 d6 grove
run b 7
