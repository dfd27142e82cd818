#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "fault/fault.h"
#include "support/fork_child.h"

namespace tessera::testing {

/// How a call under a fault ended.
struct CallUnderFault {
  bool hit = false;     ///< the operation was reached
  bool killed = false;  ///< by the fault
  std::string error;    ///< empty: none
};

/// Calls in a child, whose N-th operation on the folder meets the fault.
inline CallUnderFault call_under(Fault fault, int64_t at, const fs::path& folder,
                                 const std::function<void()>& call) {
  const fs::path note = folder.parent_path() / "note";
  const pid_t child = testing::fork_child();
  if (child == 0) {
    std::string error;
    arm_fault(fault, at, folder.c_str());
    try {
      call();
    } catch (const Error& thrown) {
      error = thrown.what();
    } catch (...) {
      error = "not an Error";
    }
    const int64_t seen = operations_seen();
    arm_fault(Fault::none, 0, "");
    std::ofstream(note) << seen << " " << error;
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    return {.hit = true, .killed = true};
  }
  CallUnderFault ended;
  int64_t seen = 0;
  std::ifstream file(note);
  file >> seen;
  file.get();
  std::getline(file, ended.error, '\0');
  ended.hit = seen >= at;
  return ended;
}

/// The name of a test's fault.
inline std::string fault_name(const ::testing::TestParamInfo<Fault>& info) {
  switch (info.param) {
    case Fault::fail:
      return "fail";
    case Fault::broken:
      return "broken";
    case Fault::cut:
      return "cut";
    default:
      return "kill";
  }
}

}  // namespace tessera::testing
