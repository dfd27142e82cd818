#pragma once

#include <csignal>

#include <sys/prctl.h>
#include <unistd.h>

namespace tessera::testing {

/// Forks a process that the system kills when this one ends, even if a test ends early. Returns
/// what fork() does.
inline pid_t fork_child() {
  const pid_t child = ::fork();
  if (child == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return child;
}

}  // namespace tessera::testing
