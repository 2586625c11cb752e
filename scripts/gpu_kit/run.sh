#!/bin/sh
# gpu-kit/run.sh [RESULTS] [--stages a b ...]: run the kit; nothing is installed outside this folder.
# RESULTS is where results go; else the variable BATON_KIT_RESULTS, else the folder results here.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 1
python=${BATON_KIT_PYTHON:-}
for candidate in python3 python3.12 python3.13 python3.11; do
  [ -n "$python" ] && break
  if "$candidate" -c 'import sys, numpy, lzma; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
  then python=$candidate; fi
done
if [ -z "$python" ]; then
  echo 'run.sh: no python3 from 3.11 on with numpy is on PATH; name one in BATON_KIT_PYTHON' >&2
  exit 1
fi
exec "$python" -B -u "$here/runner.py" "$@"
