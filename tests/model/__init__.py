"""An executable model of the delivery rules: does any interleaving lose or double a pair?

The world of one run, drawn from a seed:

* ``kafka``: partitions, a consumer group with generations, transactions.
* ``index``: the server of the index, in slots. A script changes one slot.
* ``store``: the connection of a process to the server, with the methods of ``streamdedup.index.contract``.
* ``detector`` and ``daemon``: the work of a process on a batch, step by step as in ``streamdedup.detection.detector``
  and ``streamdedup.daemon.loop``. Each effect on a slot or on Kafka is one step. Between two steps of a process other
  events occur: steps of other processes, a kill, a rebalance, a process that continues long after it was replaced,
  offsets set back, a topic that is deleted and created again, an index that is flushed or returns to an earlier time,
  a lost reply, a delayed call.
* ``simulation``: draws documents (upserts, returns to an older text, appends, deletions, redeliveries in the same and
  in another partition), faults and the order of steps.
* ``truth``: computes the pairs that had to be published from the logs and the times of the commits, and compares.

``rules`` lists the rules, each with a switch and the mistake without it; ``breaking`` has a scenario for each mistake.
A change of the rules begins in the model.

Not in the model: clusters, caps, several profiles, defects of the Kafka client, and the loss of single writes when a
replica of the server takes over (the model returns to an earlier time as a whole).

Run the model with ``make model SEEDS=1000000``, without a rule with ``python -m tests.model 3000 --without fence``, and
look at one run with ``python -m tests.model --show 7``.
"""
