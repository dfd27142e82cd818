// A library that stands between a program and the system and makes its N-th operation on a folder's
// files fail. A test program links it; another program gets it by LD_PRELOAD, with
// TESSERA_FAULT=KIND:N:FOLDER in its environment, KIND as in Fault. With TESSERA_FAULT_SEEN=FILE it
// writes the number of operations there when it ends.
//
// Under AddressSanitizer a preloaded library comes before the sanitizer's, which refuses to start
// unless ASAN_OPTIONS has verify_asan_link_order=0; this library needs nothing of it.

#include "fault/fault.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera::testing {
namespace {

// Of plain types: operations come before any constructor has run.
std::atomic<Fault> armed{Fault::none};
std::atomic<int64_t> fault_at{0};
std::atomic<int64_t> seen{0};
std::array<char, 4096> watched{};

enum class Act { pass, fail, half, half_and_die };

/// The function of this name behind this library.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::string path_of(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = ::readlink(link.c_str(), path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<size_t>(size)) : "";
}

std::string path_at(int folder, const char* path) {
  if (path[0] == '/') return path;
  std::array<char, 4096> current{};
  const std::string base = folder != AT_FDCWD                                    ? path_of(folder)
                           : ::getcwd(current.data(), current.size()) != nullptr ? current.data()
                                                                                 : "";
  return base + "/" + path;
}

bool is_watched(std::string_view path) {
  const std::string_view folder(watched.data());
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

/// Counts an operation and says what is to become of it. `moves` is whether it reads or writes.
Act decide(bool moves) {
  const int64_t number = ++seen;
  const Fault fault = armed;
  if (fault == Fault::broken && number >= fault_at) return Act::fail;
  if (number != fault_at) return Act::pass;
  if (fault == Fault::fail) return Act::fail;
  if (fault == Fault::cut && moves) return Act::half;
  if (fault == Fault::kill) {
    if (moves) return Act::half_and_die;
    ::kill(::getpid(), SIGKILL);
  }
  if (fault == Fault::signal) ::kill(::getpid(), SIGTERM);
  if (fault == Fault::stop) ::kill(::getpid(), SIGSTOP);
  return Act::pass;
}

Act on_path(int folder, const char* path) {
  if (armed == Fault::none || !is_watched(path_at(folder, path))) return Act::pass;
  return decide(false);
}

Act on_descriptor(int descriptor, bool moves = false) {
  if (armed == Fault::none || !is_watched(path_of(descriptor))) return Act::pass;
  return decide(moves);
}

Act on_removal(int folder, const char* path) {
  if (armed == Fault::stop_at_removal && is_watched(path_at(folder, path))) {
    armed = Fault::none;
    ::kill(::getpid(), SIGSTOP);
  }
  return on_path(folder, path);
}

int fail_with(int error) {
  errno = error;
  return -1;
}

/// Reads or writes `count` bytes by `move`, as the fault has it.
template <typename Move>
ssize_t moved(int descriptor, size_t count, int error, Move&& move) {
  switch (on_descriptor(descriptor, true)) {
    case Act::fail:
      return fail_with(error);
    case Act::half:
      return move(count > 1 ? count / 2 : count);
    case Act::half_and_die:
      move(count / 2);
      ::kill(::getpid(), SIGKILL);
      return 0;
    case Act::pass:
      break;
  }
  return move(count);
}

template <typename Open>
int opened(int folder, const char* path, int flags, Open&& open) {
  if (on_path(folder, path) != Act::fail) return open();
  return fail_with((flags & O_CREAT) != 0 ? ENOSPC : EIO);
}

/// The argument that comes with O_CREAT.
mode_t mode_of(int flags, va_list rest) {
  return (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
}

/// A flush of what is watched is left out; see arm_fault().
template <typename Flush>
int flushed(int descriptor, Flush&& flush) {
  if (on_descriptor(descriptor) == Act::fail) return fail_with(EIO);
  return armed != Fault::none && is_watched(path_of(descriptor)) ? 0 : flush();
}

__attribute__((constructor)) void arm_by_environment() {
  const char* text = std::getenv("TESSERA_FAULT");
  if (text == nullptr) return;
  const std::string all = text;
  const size_t first = all.find(':');
  const size_t second = all.find(':', first + 1);
  const std::string kind = all.substr(0, first);
  const Fault fault = kind == "fail"              ? Fault::fail
                      : kind == "broken"          ? Fault::broken
                      : kind == "cut"             ? Fault::cut
                      : kind == "kill"            ? Fault::kill
                      : kind == "stop"            ? Fault::stop
                      : kind == "stop_at_removal" ? Fault::stop_at_removal
                                                  : Fault::count;
  arm_fault(fault, std::atoll(all.c_str() + first + 1), all.c_str() + second + 1);
}

__attribute__((destructor)) void tell_operations() {
  const char* path = std::getenv("TESSERA_FAULT_SEEN");
  if (path == nullptr) return;
  armed = Fault::none;
  if (std::FILE* file = std::fopen(path, "w")) {
    std::fprintf(file, "%lld\n", static_cast<long long>(seen));
    std::fclose(file);
  }
}

}  // namespace

void arm_fault(Fault fault, int64_t at, const char* folder) {
  armed = Fault::none;
  std::strncpy(watched.data(), folder, watched.size() - 1);
  fault_at = at;
  seen = 0;
  armed = fault;
}

int64_t operations_seen() { return seen; }

}  // namespace tessera::testing

using namespace tessera::testing;

extern "C" {

int open(const char* path, int flags, ...) {
  static const auto real = next<int(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened(AT_FDCWD, path, flags, [&] { return real(path, flags, mode); });
}

int open64(const char* path, int flags, ...) {
  static const auto real = next<int(const char*, int, ...)>("open64");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened(AT_FDCWD, path, flags, [&] { return real(path, flags, mode); });
}

int openat(int folder, const char* path, int flags, ...) {
  static const auto real = next<int(int, const char*, int, ...)>("openat");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened(folder, path, flags, [&] { return real(folder, path, flags, mode); });
}

int openat64(int folder, const char* path, int flags, ...) {
  static const auto real = next<int(int, const char*, int, ...)>("openat64");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened(folder, path, flags, [&] { return real(folder, path, flags, mode); });
}

int close(int descriptor) {
  static const auto real = next<int(int)>("close");
  const Act act = on_descriptor(descriptor);
  const int result = real(descriptor);
  return act == Act::fail ? fail_with(EIO) : result;
}

ssize_t read(int descriptor, void* to, size_t count) {
  static const auto real = next<ssize_t(int, void*, size_t)>("read");
  return moved(descriptor, count, EIO, [&](size_t size) { return real(descriptor, to, size); });
}

ssize_t pread(int descriptor, void* to, size_t count, off_t at) {
  static const auto real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  return moved(descriptor, count, EIO, [&](size_t size) { return real(descriptor, to, size, at); });
}

ssize_t pread64(int descriptor, void* to, size_t count, off64_t at) {
  return pread(descriptor, to, count, at);
}

ssize_t write(int descriptor, const void* from, size_t count) {
  static const auto real = next<ssize_t(int, const void*, size_t)>("write");
  return moved(descriptor, count, ENOSPC,
               [&](size_t size) { return real(descriptor, from, size); });
}

ssize_t pwrite(int descriptor, const void* from, size_t count, off_t at) {
  static const auto real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return moved(descriptor, count, ENOSPC,
               [&](size_t size) { return real(descriptor, from, size, at); });
}

ssize_t pwrite64(int descriptor, const void* from, size_t count, off64_t at) {
  return pwrite(descriptor, from, count, at);
}

int fsync(int descriptor) {
  static const auto real = next<int(int)>("fsync");
  return flushed(descriptor, [&] { return real(descriptor); });
}

int fdatasync(int descriptor) {
  static const auto real = next<int(int)>("fdatasync");
  return flushed(descriptor, [&] { return real(descriptor); });
}

int ftruncate(int descriptor, off_t size) noexcept {
  static const auto real = next<int(int, off_t)>("ftruncate");
  return on_descriptor(descriptor) == Act::fail ? fail_with(ENOSPC) : real(descriptor, size);
}

int flock(int descriptor, int operation) noexcept {
  static const auto real = next<int(int, int)>("flock");
  return on_descriptor(descriptor) == Act::fail ? fail_with(EIO) : real(descriptor, operation);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int(const char*, const char*)>("rename");
  return on_path(AT_FDCWD, to) == Act::fail ? fail_with(EIO) : real(from, to);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  static const auto real = next<int(int, const char*, int, const char*)>("renameat");
  return on_path(to_folder, to) == Act::fail ? fail_with(EIO)
                                             : real(from_folder, from, to_folder, to);
}

int unlink(const char* path) noexcept {
  static const auto real = next<int(const char*)>("unlink");
  return on_removal(AT_FDCWD, path) == Act::fail ? fail_with(EIO) : real(path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static const auto real = next<int(int, const char*, int)>("unlinkat");
  return on_removal(folder, path) == Act::fail ? fail_with(EIO) : real(folder, path, flags);
}

int remove(const char* path) noexcept {
  static const auto real = next<int(const char*)>("remove");
  return on_removal(AT_FDCWD, path) == Act::fail ? fail_with(EIO) : real(path);
}

int rmdir(const char* path) noexcept {
  static const auto real = next<int(const char*)>("rmdir");
  return on_removal(AT_FDCWD, path) == Act::fail ? fail_with(EIO) : real(path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = next<int(const char*, mode_t)>("mkdir");
  return on_path(AT_FDCWD, path) == Act::fail ? fail_with(ENOSPC) : real(path, mode);
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  static const auto real = next<int(int, const char*, mode_t)>("mkdirat");
  return on_path(folder, path) == Act::fail ? fail_with(ENOSPC) : real(folder, path, mode);
}

}  // extern "C"
