! SPDX-License-Identifier: BSD-3-Clause
! use mpi_f08: nonblocking collectives among messages, completed in several forms. Prints "ok fortran".
program fortran_requests_f08
  use mpi_f08
  implicit none
  integer, parameter :: n = 30000, rounds = 12
  double precision, asynchronous :: own(n), total(n), shared(n), letter(8), answer(8)
  double precision, allocatable, asynchronous :: all(:)
  type(MPI_Request) :: requests(5)
  type(MPI_Status) :: status
  integer :: rank, nranks, round, root, next, last, bad, sum_bad, index, done, i
  logical :: flag

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks)
  allocate(all(n * nranks))
  next = mod(rank + 1, nranks)
  last = mod(rank + nranks - 1, nranks)
  bad = 0
  ! with one blocking collective the communicator is connected
  do round = 1, 4
    shared = round
    call MPI_Bcast(shared, n, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD)
  end do
  do round = 1, rounds
    root = mod(round, nranks)
    own = rank + round
    total = -1
    all = -1
    shared = -1
    if (rank == root) shared = [(dble(i + round), i = 1, n)]
    letter = rank * 100 + round
    call MPI_Irecv(answer, 8, MPI_DOUBLE_PRECISION, last, 7, MPI_COMM_WORLD, requests(1))
    call MPI_Iallreduce(own, total, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, requests(2))
    call MPI_Isend(letter, 8, MPI_DOUBLE_PRECISION, next, 7, MPI_COMM_WORLD, requests(3))
    call MPI_Ibcast(shared, n, MPI_DOUBLE_PRECISION, root, MPI_COMM_WORLD, requests(4))
    all(rank * n + 1 : rank * n + n) = rank
    call MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_DOUBLE_PRECISION, &
      MPI_COMM_WORLD, requests(5))
    if (mod(round, 3) == 0) then
      call MPI_Waitall(5, requests, MPI_STATUSES_IGNORE)
    else if (mod(round, 3) == 1) then
      done = 0
      do while (done < 5)
        call MPI_Testany(5, requests, index, flag, status)
        if (flag) done = done + 1
      end do
    else
      do i = 1, 5
        call MPI_Waitany(5, requests, index, MPI_STATUS_IGNORE)
      end do
    end if
    do i = 1, 5
      if (requests(i) /= MPI_REQUEST_NULL) bad = bad + 1
    end do
    if (any(total /= dble(nranks * round + nranks * (nranks - 1) / 2))) bad = bad + 1
    if (any(answer /= dble(last * 100 + round))) bad = bad + 1
    do i = 1, n
      if (shared(i) /= dble(i + round)) bad = bad + 1
    end do
    do i = 1, n * nranks
      if (all(i) /= dble((i - 1) / n)) bad = bad + 1
    end do
  end do
  call MPI_Reduce(bad, sum_bad, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
  if (rank == 0 .and. sum_bad == 0) print '(a)', 'ok fortran'
  if (rank == 0 .and. sum_bad /= 0) print '(a, i0)', 'fail fortran: ', sum_bad
  call MPI_Finalize()
end program
