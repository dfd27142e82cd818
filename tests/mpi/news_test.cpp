#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <mpi.h>

#include "comm/mpi/mpi_news_mpi.h"
#include "mpi/joined.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

/// Calls news.listen() for a while.
void listen_for(MpiNews& news, milliseconds duration) {
  const auto end = MpiNews::Clock::now() + duration;
  while (MpiNews::Clock::now() < end) {
    news.listen();
    std::this_thread::yield();
  }
}

TEST(MpiNews, AnAnswerThatComesLateAnswersNoLaterQuestion) {
  int by_mpi = 0;
  MPI_Initialized(&by_mpi);
  if (by_mpi == 0 || joined().ranks() < 3) GTEST_SKIP() << "needs three processes of MPI";
  MPI_Comm news_world = MPI_COMM_NULL;
  MPI_Comm turns = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &news_world);
  MPI_Comm_dup(MPI_COMM_WORLD, &turns);
  {
    MpiNews news(news_world);
    const int rank = joined().rank();
    // Rank 1 answers the first question only after rank 0 has given up, and rank 2 the second one
    // only after the late answer is on its way.
    if (rank == 0) {
      EXPECT_TRUE(news.ask(std::vector{1}, milliseconds(0)).empty());
      MPI_Send(nullptr, 0, MPI_BYTE, 1, 0, turns);
      const auto answers = news.ask(std::vector{2}, std::chrono::seconds(20));
      EXPECT_EQ(answers.count(1), 0U);
      EXPECT_EQ(answers.count(2), 1U);
    } else if (rank == 1) {
      MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, turns, MPI_STATUS_IGNORE);
      listen_for(news, milliseconds(100));
      MPI_Send(nullptr, 0, MPI_BYTE, 2, 0, turns);
    } else if (rank == 2) {
      MPI_Recv(nullptr, 0, MPI_BYTE, 1, 0, turns, MPI_STATUS_IGNORE);
      listen_for(news, milliseconds(100));
    }
    MPI_Barrier(turns);
  }
  MPI_Comm_free(&turns);
  MPI_Comm_free(&news_world);
}

}  // namespace
}  // namespace tessera
