! SPDX-License-Identifier: BSD-3-Clause
! Module variables, SAVE, COMMON, large automatic arrays, internal procedures and units in each rank.
module state
  integer :: counter = 5
end module

integer function pmpi_endpoints() bind(c, name='PMPI_Endpoints_test')
  pmpi_endpoints = 0
end function

subroutine automatic(n, total)
  integer, intent(in) :: n
  integer, intent(out) :: total
  integer :: values(n)
  integer, save :: calls = 0
  calls = calls + 1
  values = calls
  total = sum(values)
end subroutine

program endpoints
  use state
  character(len=8) :: text
  character(len=32) :: file, line
  integer :: rank, i, total, shared
  common /block/ shared
  call get_environment_variable('MPI_LOCALRANKID', text)
  read (text, *) rank
  shared = rank
  do i = 1, 100
    counter = counter + rank
    call automatic(500000, total)
    call through(add)
  end do
  if (counter /= 5 + 100 * rank .or. total /= 50000000 .or. shared /= 101 * rank) stop 1
  write (file, '(a,i0)') 'unit.', rank
  open (unit=10, file=file, status='replace')
  write (10, '(a,i0)') 'rank ', rank
  rewind (10)
  read (10, '(a)') line
  close (10, status='delete')
  if (line(1:5) /= 'rank ') stop 2
  print '(i0,a)', rank, ': fortran'
contains
  subroutine add() ! a pointer to it needs a stack that can be executed
    shared = shared + rank
  end subroutine
  subroutine through(f)
    interface
      subroutine f()
      end subroutine
    end interface
    call f()
  end subroutine
end program
