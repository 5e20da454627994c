"""Kafka behind the Protocols of ``kafka.protocols``; the only package that imports the Kafka client.

Calls that ask Kafka raise ``BrokerUnavailable`` if no broker answers in time, and ``FatalError`` if the broker refuses
the client permanently; docstrings name further errors only.

The client has traps that lose or duplicate records, such as an unchecked future or a membership read too late. The code
names each trap, and ``tests/integration/test_kafka_traps.py`` has a test for each.
"""
