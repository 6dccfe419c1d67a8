// SPDX-License-Identifier: BSD-3-Clause
// One call site in each kind of C++ function that has a long symbol.
#include <functional>
#include <map>
#include <mpi.h>
#include <string>

namespace
{
void hidden(int *at, const std::map<std::string, std::function<int(int)>> &)
{
	MPI_Bcast(at, 1, MPI_INT, 0, MPI_COMM_WORLD);
}
}

namespace ns
{
template <class T> struct Box {
	T value;
	__attribute__((noinline)) void share(std::string, int (*)(char)) const
	{
		T copy = value;
		MPI_Allreduce(&value, &copy, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	}
	__attribute__((noinline)) void operator()(int)
	{
		MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
};
}

int main(int argc, char **argv)
{
	int at = 1;
	ns::Box<int> box = { 2 };
	std::map<std::string, std::function<int(int)>> none;

	MPI_Init(&argc, &argv);
	hidden(&at, none);
	box.share("x", nullptr);
	box(1);
	[](int *to) __attribute__((noinline)) {
		MPI_Reduce(MPI_IN_PLACE, to, 0, MPI_INT, MPI_SUM, 0, MPI_COMM_SELF);
	}(&at);
	MPI_Finalize();
}
