"""Alerts in Avro: the schema, the messages, and their readers, with a registry in this process."""
