#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `./dev demo`: flight_delays.py, an ordinary mpi4py program, plain and under Sluice in turn. The
# results are compared bit by bit, the times in a table.
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
VENV=${DEMO_VENV:-$ROOT/build/venv-demo}
if [ ! -x "$VENV/bin/mpiexec" ]; then
	echo "demo: nothing in $VENV; run ./dev demo, which sets it up" >&2
	exit 1
fi
export PATH=$VENV/bin:$PATH
exec "$VENV/bin/python" "$ROOT/examples/demo.py" "$@"
