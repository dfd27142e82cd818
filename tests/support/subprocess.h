#pragma once

#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

extern char** environ;

namespace tessera::testing {

/// A program that runs beside the test. Its output goes to `output`.
class Subprocess {
 public:
  Subprocess(std::vector<std::string> arguments, const fs::path& output) : output_(output) {
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn(&process_, pointers[0], &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Subprocess() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      wait();
    }
  }
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  /// Nothing for a process that was found to have ended: its number may be another's by now.
  void signal(int number) const {
    if (process_ > 0) ::kill(process_, number);
  }
  bool running() {
    if (process_ > 0 && ::waitpid(process_, &status_, WNOHANG) == process_) process_ = -1;
    return process_ > 0;
  }
  /// The exit status; 128 and the signal's number for a process that a signal ended.
  int wait() {
    if (process_ > 0) ::waitpid(process_, &status_, 0);
    process_ = -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  pid_t id() const { return process_; }
  std::string output() const { return read_file(output_); }

 private:
  fs::path output_;
  pid_t process_ = -1;
  int status_ = 0;
};

}  // namespace tessera::testing
