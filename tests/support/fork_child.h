#pragma once

#include <csignal>

#include <sys/prctl.h>
#include <unistd.h>

namespace tessera::testing {

/// Forks a process that the system kills when the calling thread ends, even if a test ends early.
/// Returns what fork() does.
inline pid_t fork_child() {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it has ended already
  }
  return child;
}

}  // namespace tessera::testing
