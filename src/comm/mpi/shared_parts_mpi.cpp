#include "comm/mpi/shared_parts_mpi.h"

#include <array>
#include <atomic>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/mpi/mpi_call_mpi.h"

namespace tessera {
namespace {

/// Returns whether `own` is true on all ranks.
bool on_all(bool own, MPI_Comm comm) {
  int all = own ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  return all != 0;
}

using Name = std::array<char, 64>;

/// Makes shared memory of this many bytes, and returns its name; empty if there is no memory.
/// Allocates it at once: otherwise a write would end the process by SIGBUS when /dev/shm is full.
Name make_memory(int64_t bytes) {
  static std::atomic<int> number = 0;
  Name name{};
  fmt::format_to_n(name.data(), name.size() - 1, "/tessera-{}-{}", ::getpid(), number++);
  const int memory = ::shm_open(name.data(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (memory < 0) return {};
  const bool allocated = ::posix_fallocate(memory, 0, bytes) == 0;
  ::close(memory);
  if (allocated) return name;
  ::shm_unlink(name.data());
  return {};
}

/// Returns the memory of this name; null if it cannot be mapped.
std::byte* map_memory(const Name& name, int64_t bytes) {
  if (name[0] == 0) return nullptr;
  const int memory = ::shm_open(name.data(), O_RDWR, 0);
  if (memory < 0) return nullptr;
  void* const mapped =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  ::close(memory);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

}  // namespace

bool on_one_machine(MPI_Comm comm) {
  MPI_Comm machine = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
            "MPI_Comm_split_type");
  const bool all_here = ranks_of(machine) == ranks_of(comm);
  MPI_Comm_free(&machine);
  return on_all(all_here, comm);
}

std::vector<std::byte*> share_parts(MPI_Comm comm, int64_t bytes) {
  const int size = ranks_of(comm);
  const int position = position_in(comm);
  Name name = position == 0 ? make_memory(size * bytes) : Name{};
  check_mpi(MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, comm), "MPI_Bcast");
  std::byte* const memory = map_memory(name, size * bytes);
  const bool all_mapped = on_all(memory != nullptr, comm);
  // The memory lives while a process maps it. Without a name it is freed even if all are killed.
  if (position == 0 && name[0] != 0) ::shm_unlink(name.data());
  if (!all_mapped) {
    if (memory != nullptr) ::munmap(memory, static_cast<size_t>(size * bytes));
    return {};
  }
  std::vector<std::byte*> parts;
  for (int i = 0; i < size; ++i) parts.push_back(memory + i * bytes);
  return parts;
}

}  // namespace tessera
