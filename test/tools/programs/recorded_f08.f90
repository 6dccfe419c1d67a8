! SPDX-License-Identifier: BSD-3-Clause
! A ring of 10 steps with 100 integers, and a sum in each step, then a put, for sluice trace --goal.
program recorded_f08
  use mpi_f08
  implicit none
  integer :: rank, ranks, i, a(100), total
  integer, asynchronous :: b(100)
  type(MPI_Request) :: requests(2)
  type(MPI_Win) :: win
  integer(kind=MPI_ADDRESS_KIND) :: size = 4, where = 0
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  a = rank
  do i = 1, 10
    call MPI_Irecv(b, 100, MPI_INTEGER, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(a, 100, MPI_INTEGER, mod(rank + 1, ranks), 5, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  end do
  call MPI_Win_create(b, size, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win)
  call MPI_Win_fence(0, win)
  call MPI_Put(a, 1, MPI_INTEGER, mod(rank + 1, ranks), where, 1, MPI_INTEGER, win)
  call MPI_Win_fence(0, win)
  call MPI_Win_free(win)
  call MPI_Finalize()
end program
