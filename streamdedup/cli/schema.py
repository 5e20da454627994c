"""``streamdedup schema``: print the JSON Schema of a message (``wire/schemas``), for validators and code generators."""

from typing import Annotated, Literal

import typer

from streamdedup import wire


def schema(
    name: Annotated[Literal["document", "alert", "dead-letter"], typer.Argument(help="Kind of message.")],
) -> None:
    """Print the JSON Schema of a message.

    Example: streamdedup schema alert > alert.schema.json
    """
    typer.echo(wire.schema(name).rstrip("\n"))
