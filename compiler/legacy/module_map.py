"""Where the modules of old TVMs are today, and what to use instead of those that are gone.

`modules.txt` has them, and says what its states are.
"""

from ..support.text_tables import names_in_state, read_table

_TABLE = read_table(__file__, "modules.txt")
PARTS = names_in_state(_TABLE, "part")
"""Modules that a package had its names from, which has them itself today."""
MOVED = PARTS | names_in_state(_TABLE, "moved")
OF_06, NAMES_OF_06 = (names_in_state(_TABLE, state) for state in ("0.6", "0.6 names"))
EXTENDED = names_in_state(_TABLE, "extended")
GONE = names_in_state(_TABLE, "gone")
ABSENT = names_in_state(_TABLE, "absent")
MXNET = names_in_state(_TABLE, "mxnet")
NAMES = names_in_state(_TABLE, "name")
