! SPDX-License-Identifier: BSD-3-Clause
! include 'mpif.h': calls right after a broadcast or gather on the same buffer, before anything
! touches it. Prints "ok fortran".
program observe_mpifh
  implicit none
  include 'mpif.h'
  integer, parameter :: n = 200000
  double precision :: buf(n), other(n)
  double precision, allocatable :: all(:)
  integer :: rank, nranks, ierr, i, round, root, bad, total, position, at_root
  integer :: requests(2)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks, ierr)
  allocate(all(n * nranks))
  bad = 0
  do round = 1, 8
    root = mod(round, nranks)
    at_root = merge(1, 0, rank == root)
    buf = 0
    if (rank == root) buf = [(dble(i + round), i = 1, n)]
    if (mod(round / 2, 2) == at_root) call be_late()
    call MPI_Bcast(buf, n, MPI_DOUBLE_PRECISION, root, MPI_COMM_WORLD, ierr)
    if (mod(round, 4) < 2) then
      call MPI_Sendrecv(buf, n, MPI_DOUBLE_PRECISION, 0, 1, other, n, MPI_DOUBLE_PRECISION, 0, 1, &
                        MPI_COMM_SELF, MPI_STATUS_IGNORE, ierr)
    else
      position = 0
      call MPI_Pack(buf, n, MPI_DOUBLE_PRECISION, other, 8 * n, position, MPI_COMM_SELF, ierr)
      call MPI_Allreduce(MPI_IN_PLACE, buf, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_SELF, ierr)
    end if
    do i = 1, n
      if (buf(i) /= dble(i + round) .or. other(i) /= dble(i + round)) bad = bad + 1
    end do
    all = 0
    other = rank + 0.25d0
    if (rank == root) all(rank * n + 1 : rank * n + n) = other
    if (mod(round / 2, 2) == at_root) call be_late()
    if (rank == root) then
      call MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_DOUBLE_PRECISION, root, &
                      MPI_COMM_WORLD, ierr)
      call MPI_Allreduce(MPI_IN_PLACE, all, n * nranks, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_SELF, ierr)
      do i = 1, n * nranks
        if (all(i) /= (i - 1) / n + 0.25d0) bad = bad + 1
      end do
    else
      call MPI_Gather(other, n, MPI_DOUBLE_PRECISION, all, n, MPI_DOUBLE_PRECISION, root, &
                      MPI_COMM_WORLD, ierr)
      call MPI_Irecv(other, n, MPI_DOUBLE_PRECISION, 0, 1, MPI_COMM_SELF, requests(1), ierr)
      call MPI_Isend(buf, n, MPI_DOUBLE_PRECISION, 0, 1, MPI_COMM_SELF, requests(2), ierr)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    end if
  end do
  call MPI_Allreduce(bad, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. total == 0) print '(a)', 'ok fortran'
  call MPI_Finalize(ierr)

contains

  subroutine be_late()
    double precision :: start

    start = MPI_Wtime()
    do while (MPI_Wtime() < start + 0.003d0)
    end do
  end subroutine

end program
