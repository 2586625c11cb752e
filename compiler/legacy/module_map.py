"""Where the modules of old TVMs are today, and what to use instead of those that are gone.

`modules.txt` has them, and says what its states are.
"""

from __future__ import annotations

from ..support.text_tables import names_in_state, read_table
from . import module_aliases

_TABLE = read_table(__file__, "modules.txt")
MOVED = module_aliases.MODULES | names_in_state(_TABLE, "moved")
EXTENDED = names_in_state(_TABLE, "extended")
GONE = names_in_state(_TABLE, "gone")
ABSENT = names_in_state(_TABLE, "absent")
MXNET = names_in_state(_TABLE, "mxnet")
