#include "comm/mpi/shared_parts_mpi.h"

#include <cstring>

#include "comm/mpi/mpi_call_mpi.h"

namespace tessera {
namespace {

int size_of(MPI_Comm comm) {
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

/// Whether it is so on all ranks.
bool on_all(bool own, MPI_Comm comm) {
  int all = own ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  return all != 0;
}

}  // namespace

bool on_one_machine(MPI_Comm comm) {
  MPI_Comm here = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here),
            "MPI_Comm_split_type");
  const bool all_here = size_of(here) == size_of(comm);
  MPI_Comm_free(&here);
  return on_all(all_here, comm);
}

std::vector<std::byte*> share_parts(MPI_Comm comm, int64_t bytes) {
  std::byte* own = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const int made = MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, comm, &own, &window);
  if (!on_all(made == MPI_SUCCESS, comm)) return {};
  std::memset(own, 0, static_cast<size_t>(bytes));
  std::vector<std::byte*> parts(static_cast<size_t>(size_of(comm)));
  for (size_t position = 0; position < parts.size(); ++position) {
    MPI_Aint part_bytes = 0;
    int unit = 0;
    check_mpi(MPI_Win_shared_query(window, static_cast<int>(position), &part_bytes, &unit,
                                   &parts[position]),
              "MPI_Win_shared_query");
  }
  check_mpi(MPI_Barrier(comm), "MPI_Barrier");  // all parts are zeros
  return parts;
}

}  // namespace tessera
