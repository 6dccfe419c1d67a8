// SPDX-License-Identifier: BSD-3-Clause
// Static objects, inline variables, exceptions and streams of C++ in each rank.
#include <cstdlib>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" int PMPI_Endpoints_test() { return 0; }

struct Global {
	int rank = std::atoi(std::getenv("MPI_LOCALRANKID"));
	~Global() { std::cout << rank << ": destroyed" << std::endl; }
};
static Global global;

template <typename T> inline T &unique()
{
	static T value{}; // STB_GNU_UNIQUE
	return value;
}
inline std::map<int, std::string> table;
thread_local std::string text = "local";

static int deep(int n)
{
	if (n)
		return deep(n - 1) + 1;
	std::this_thread::yield();
	throw std::runtime_error(std::to_string(global.rank));
}

int main()
{
	for (int i = 0; i < 200; i++) {
		unique<int>() += global.rank;
		table[i] = std::to_string(i * global.rank);
		try {
			deep(50);
		} catch (const std::exception &e) {
			if (std::stoi(e.what()) != global.rank)
				return 1;
		}
	}
	if (unique<int>() != 200 * global.rank || table[199] != std::to_string(199 * global.rank))
		return 2;
	std::vector<std::thread> threads;
	for (int i = 0; i < 4; i++)
		threads.emplace_back([] { text += "!"; });
	for (auto &t : threads)
		t.join();
	return text == "local" ? 0 : 3;
}
