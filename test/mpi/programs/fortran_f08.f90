! SPDX-License-Identifier: BSD-3-Clause
! use mpi_f08: broadcasts, gathers, MPI_IN_PLACE and MPI_BOTTOM from Fortran. Prints "ok fortran".
program fortran_f08
  use mpi_f08
  implicit none
  integer, parameter :: n = 100000
  double precision :: buf(n)
  double precision, allocatable :: all(:)
  integer :: rank, nranks, ierr, i, round, root, bad, total
  type(MPI_Datatype) :: absolute
  integer(kind=MPI_ADDRESS_KIND) :: at(1)
  integer :: lengths(1)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks, ierr)
  allocate(all(n * nranks))
  bad = 0
  do round = 1, 8
    root = mod(round, nranks)
    buf = 0
    if (rank == root) buf = [(dble(i + round), i = 1, n)]
    call MPI_Bcast(buf, n, MPI_DOUBLE_PRECISION, root, MPI_COMM_WORLD, ierr)
    do i = 1, n
      if (buf(i) /= dble(i + round)) bad = bad + 1
    end do
    buf = rank + 0.25d0
    all = 0
    all(rank * n + 1 : rank * n + n) = buf
    if (rank == root) then
      call MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_DOUBLE_PRECISION, root, &
                      MPI_COMM_WORLD, ierr)
      do i = 1, n * nranks
        if (all(i) /= (i - 1) / n + 0.25d0) bad = bad + 1
      end do
    else
      call MPI_Gather(buf, n, MPI_DOUBLE_PRECISION, all, n, MPI_DOUBLE_PRECISION, root, &
                      MPI_COMM_WORLD, ierr)
    end if
  end do
  call MPI_Get_address(buf, at(1), ierr)
  lengths(1) = n
  call MPI_Type_create_hindexed(1, lengths, at, MPI_DOUBLE_PRECISION, absolute, ierr)
  call MPI_Type_commit(absolute, ierr)
  buf = 0
  if (rank == 0) buf = 7.5d0
  call MPI_Bcast(MPI_BOTTOM, 1, absolute, 0, MPI_COMM_WORLD, ierr)
  if (any(buf /= 7.5d0)) bad = bad + 1
  call MPI_Type_free(absolute, ierr)
  call MPI_Reduce(bad, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. total == 0) print '(a)', 'ok fortran'
  if (rank == 0 .and. total /= 0) print '(a, i0)', 'fail fortran: ', total
  call MPI_Finalize(ierr)
end program
