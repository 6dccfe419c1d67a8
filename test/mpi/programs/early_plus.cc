// SPDX-License-Identifier: BSD-3-Clause
// C++ right after a broadcast: containers, exceptions while buffers are read, threads.
// Prints "ok early_plus".
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static int rank_, size_, bad;

static uint32_t value(int round, size_t i)
{
	return static_cast<uint32_t>(i * 2654435761u + static_cast<uint32_t>(round) * 40503u);
}

static void expect(bool what, int line)
{
	if (!what) {
		std::fprintf(stderr, "early_plus.cc:%d: rank %d\n", line, rank_);
		bad++;
	}
}
#define EXPECT(x) expect(x, __LINE__)

static void late(int round)
{
	timespec ts = {0, 1500000};

	MPI_Barrier(MPI_COMM_WORLD);
	if (rank_ == round / 2 % size_)
		nanosleep(&ts, nullptr);
}

static uint32_t look(const std::vector<uint32_t> &v, size_t at)
{
	if (at >= v.size())
		throw std::out_of_range("nothing there");
	if (v[at] % 2)
		throw std::runtime_error(std::to_string(v[at]));
	return v[at];
}

static void exceptions(const std::vector<uint32_t> &v, int round)
{
	for (size_t at = v.size() - 1; at > 20000; at -= 10001) {
		try {
			EXPECT(look(v, at) == value(round, at));
		} catch (const std::runtime_error &e) {
			EXPECT(std::to_string(value(round, at)) == e.what());
		}
	}
	try {
		look(v, v.size());
		EXPECT(false);
	} catch (const std::out_of_range &) {
	}
}

static void streams(const std::vector<uint32_t> &v, int round)
{
	std::ostringstream out, model;
	std::string all(reinterpret_cast<const char *>(v.data()), v.size() * 4);

	for (size_t i = 0; i < 100; i++) {
		out << v[i * 1000] << ' ';
		model << value(round, i * 1000) << ' ';
	}
	EXPECT(out.str() == model.str());
	EXPECT(all.size() == v.size() * 4);
}

static void threads(const std::vector<uint32_t> &v, int round)
{
	std::vector<std::thread> team;
	std::vector<int> wrong(4);

	for (size_t k = 0; k < 4; k++)
		team.emplace_back([&, k] {
			for (size_t i = v.size() * k / 4; i < v.size() * (k + 1) / 4; i++)
				wrong[k] += v[i] != value(round, i);
		});
	for (auto &t : team)
		t.join();
	EXPECT(std::accumulate(wrong.begin(), wrong.end(), 0) == 0);
}

static void sorted(std::vector<uint32_t> &v, int round)
{
	std::sort(v.begin(), v.begin() + 50000);
	EXPECT(std::is_sorted(v.begin(), v.begin() + 50000));
	std::vector<uint32_t> moved = std::move(v);
	EXPECT(moved.back() == value(round, moved.size() - 1));
	moved.push_back(1); // reallocated
	v = std::move(moved);
	v.pop_back();
}

int main(int argc, char **argv)
{
	int provided, total = 0;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
	MPI_Comm_size(MPI_COMM_WORLD, &size_);
	std::vector<uint32_t> v(700001);
	for (int round = 0; round < 16; round++) {
		for (size_t i = 0; i < v.size(); i++)
			v[i] = rank_ == round % size_ ? value(round, i) : 0;
		late(round);
		MPI_Bcast(v.data(), static_cast<int>(v.size()), MPI_UINT32_T, round % size_,
			  MPI_COMM_WORLD);
		if (round % 4 == 0)
			exceptions(v, round);
		else if (round % 4 == 1)
			streams(v, round);
		else if (round % 4 == 2)
			threads(v, round);
		else
			sorted(v, round);
		for (size_t i = 50000; i < v.size(); i++)
			if (v[i] != value(round, i)) {
				EXPECT(false);
				break;
			}
	}
	MPI_Reduce(&bad, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Finalize();
	if (rank_ == 0)
		std::printf("%s early_plus\n", total ? "fail" : "ok");
	return total != 0;
}
