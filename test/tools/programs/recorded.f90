! SPDX-License-Identifier: BSD-3-Clause
! A ring of 10 steps with 100 integers, and a sum in each step, then a put, for sluice trace --goal.
program recorded
  implicit none
  include "mpif.h"
  integer :: rank, ranks, err, i, requests(2), statuses(MPI_STATUS_SIZE, 2), a(100), b(100), total
  integer :: win
  integer(kind=MPI_ADDRESS_KIND) :: size, where
  call MPI_Init(err)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, err)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, err)
  a = rank
  do i = 1, 10
    call MPI_Irecv(b, 100, MPI_INTEGER, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, requests(1), err)
    call MPI_Isend(a, 100, MPI_INTEGER, mod(rank + 1, ranks), 5, MPI_COMM_WORLD, requests(2), err)
    call MPI_Waitall(2, requests, statuses, err)
    call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, err)
  end do
  size = 4
  where = 0
  call MPI_Win_create(b, size, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, err)
  call MPI_Win_fence(0, win, err)
  call MPI_Put(a, 1, MPI_INTEGER, mod(rank + 1, ranks), where, 1, MPI_INTEGER, win, err)
  call MPI_Win_fence(0, win, err)
  call MPI_Win_free(win, err)
  call MPI_Finalize(err)
end program
