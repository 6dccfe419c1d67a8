! SPDX-License-Identifier: BSD-3-Clause
! use mpi_f08: persistent collectives among persistent messages, started by both calls, completed
! in several forms. Prints "ok fortran".
program fortran_persistent_f08
  use mpi_f08
  implicit none
  integer, parameter :: n = 30000, rounds = 12
  double precision, asynchronous :: own(n), total(n), shared(n), few(4), letter(8), answer(8)
  double precision, allocatable, asynchronous :: all(:)
  type(MPI_Request) :: requests(6)
  type(MPI_Status) :: status
  integer :: rank, nranks, round, next, last, bad, sum_bad, index, done, i
  logical :: flag

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks)
  allocate(all(n * nranks))
  next = mod(rank + 1, nranks)
  last = mod(rank + nranks - 1, nranks)
  bad = 0
  call MPI_Recv_init(answer, 8, MPI_DOUBLE_PRECISION, last, 7, MPI_COMM_WORLD, requests(1))
  call MPI_Allreduce_init(own, total, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, &
    MPI_INFO_NULL, requests(2))
  call MPI_Send_init(letter, 8, MPI_DOUBLE_PRECISION, next, 7, MPI_COMM_WORLD, requests(3))
  call MPI_Bcast_init(shared, n, MPI_DOUBLE_PRECISION, nranks - 1, MPI_COMM_WORLD, MPI_INFO_NULL, requests(4))
  call MPI_Bcast_init(few, 4, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, MPI_INFO_NULL, requests(5))
  call MPI_Allgather_init(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, &
                          MPI_INFO_NULL, requests(6))
  do round = 1, rounds
    own = rank + round
    total = -1
    shared = -1
    few = -1
    all = -1
    all(rank * n + 1 : rank * n + n) = rank + round
    if (rank == nranks - 1) shared = [(dble(i + round), i = 1, n)]
    if (rank == 0) few = round
    letter = rank * 100 + round
    if (mod(round, 2) == 0) then
      call MPI_Startall(6, requests)
    else
      do i = 1, 6 ! each rank has its own order
        index = i
        if (mod(rank, 2) == 1) index = 7 - i
        call MPI_Start(requests(index))
      end do
    end if
    if (mod(round, 3) == 0) then
      call MPI_Waitall(6, requests, MPI_STATUSES_IGNORE)
    else if (mod(round, 3) == 1) then
      done = 0
      do while (done < 6)
        call MPI_Testany(6, requests, index, flag, status)
        if (flag) done = done + 1
      end do
    else
      do i = 1, 6
        call MPI_Waitany(6, requests, index, MPI_STATUS_IGNORE)
      end do
    end if
    do i = 1, 6
      if (requests(i) == MPI_REQUEST_NULL) bad = bad + 1
    end do
    if (any(total /= dble(nranks * round + nranks * (nranks - 1) / 2))) bad = bad + 1
    if (any(answer /= dble(last * 100 + round))) bad = bad + 1
    if (any(few /= dble(round))) bad = bad + 1
    do i = 1, n
      if (shared(i) /= dble(i + round)) bad = bad + 1
    end do
    do i = 1, n * nranks
      if (all(i) /= dble((i - 1) / n + round)) bad = bad + 1
    end do
  end do
  do i = 1, 6
    call MPI_Request_free(requests(i))
    if (requests(i) /= MPI_REQUEST_NULL) bad = bad + 1
  end do
  call MPI_Reduce(bad, sum_bad, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
  if (rank == 0 .and. sum_bad == 0) print '(a)', 'ok fortran'
  if (rank == 0 .and. sum_bad /= 0) print '(a, i0)', 'fail fortran: ', sum_bad
  call MPI_Finalize()
end program
