! SPDX-License-Identifier: BSD-3-Clause
! Two places that call MPI_Bcast through the same function of the MPI's, for long and for short messages.
program traced_f08
  use mpi_f08
  implicit none
  integer, parameter :: big = 262144
  integer :: buf(big), i
  call MPI_Init()
  buf = 1
  do i = 1, 30
    call MPI_Bcast(buf, big, MPI_INTEGER, 0, MPI_COMM_WORLD) ! first
    if (mod(i, 3) == 0) call MPI_Bcast(buf, big, MPI_INTEGER, 0, MPI_COMM_WORLD) ! second
    call MPI_Bcast(buf, 2, MPI_INTEGER, 0, MPI_COMM_WORLD) ! third
    call inner(i)
  end do
  call MPI_Finalize()
contains
  subroutine inner(n)
    integer, intent(in) :: n
    integer :: more(n * 100) ! a frame of another size each time
    more = n
    call MPI_Bcast(more, n * 100, MPI_INTEGER, 0, MPI_COMM_WORLD) ! fourth
    if (any(more /= n)) error stop
  end subroutine
end program
