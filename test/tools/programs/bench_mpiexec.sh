#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# mpiexec -n N PROGRAM [ARGUMENT]... for bench_mpi.c: N processes, and the first exit code that is not 0.
size=$2
shift 2
BENCH_MPI_AREA=$(mktemp) BENCH_MPI_SIZE=$size
export BENCH_MPI_AREA BENCH_MPI_SIZE
truncate -s 40M "$BENCH_MPI_AREA"
rank=0
pids=
trap 'kill $pids; rm -f "$BENCH_MPI_AREA"; exit 143' TERM INT
while [ "$rank" -lt "$size" ]; do
	BENCH_MPI_RANK=$rank "$@" &
	pids="$pids $!"
	rank=$((rank + 1))
done
code=0
for pid in $pids; do
	wait "$pid"
	one=$?
	if [ "$one" != 0 ]; then
		code=$one
		kill $pids 2>/dev/null # the others wait for it
	fi
done
rm -f "$BENCH_MPI_AREA"
exit "$code"
