"""Call a function of a benchmark as a process of its own, which `benchmarks.servers.ModuleProcess` starts.

    python -m benchmarks.called MODULE FUNCTION ARGUMENTS

ARGUMENTS are the keyword arguments as a JSON object. What the function returns is written to result.json.
"""

import importlib
import json
import sys
from pathlib import Path

#: File of the result, in the working directory.
RESULT = "result.json"


def main() -> None:
    module, function, arguments = sys.argv[1:]
    result = getattr(importlib.import_module(f"benchmarks.{module}"), function)(**json.loads(arguments))
    Path(RESULT).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
