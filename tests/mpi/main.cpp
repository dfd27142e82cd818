#include <chrono>
#include <csignal>
#include <string_view>

#include <gtest/gtest.h>

#include "comm/processes.h"
#include "mpi/joined.h"

namespace tessera {

std::unique_ptr<Processes>& joined_slot() {
  static std::unique_ptr<Processes> processes;
  return processes;
}

}  // namespace tessera

namespace {

/// The last rank is stopped once all have said that their work has ended. MPI_Finalize would hold
/// the others for ever.
int stop_at_the_end() {
  tessera::Processes& processes = tessera::joined();
  processes.set_timeout(std::chrono::seconds(1));
  processes.report_end("", std::chrono::seconds(60));
  if (processes.rank() == processes.ranks() - 1) std::raise(SIGSTOP);
  tessera::joined_slot().reset();
  return 0;
}

}  // namespace

/// All processes go through the same tests in the same order, and each says what fails on it.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (::testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  tessera::joined_slot() = tessera::join_processes();
  if (tessera::joined_slot() == nullptr) {
    std::fputs("test_mpi is started by mpirun, with 2 processes or more\n", stderr);
    return 1;
  }
  if (argc > 1 && std::string_view(argv[1]) == "--stop-at-the-end") return stop_at_the_end();
  if (tessera::joined_slot()->rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    // Failures of other ranks are printed, successes are not.
    class Failures : public ::testing::EmptyTestEventListener {
      void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (!result.failed()) return;
        std::fprintf(stderr, "rank %d: %s:%d: %s\n", tessera::joined_slot()->rank(),
                     result.file_name() == nullptr ? "" : result.file_name(), result.line_number(),
                     result.message());
      }
    };
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Failures);
  }
  const int status = RUN_ALL_TESTS();
  tessera::joined().report_end("", std::chrono::seconds(60));
  tessera::joined_slot().reset();
  return status;
}
