"""The type for functions that show progress; the command gives one."""

from collections.abc import Callable
from contextlib import AbstractContextManager

#: Shows the progress of a part of the work: takes its title and the number of its steps, and returns a context whose
#: value takes the number of steps since the last call.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
