#include "comm/mpi/make_group_mpi.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "comm/call_errors.h"
#include "comm/mpi/meeting_watch_mpi.h"
#include "comm/mpi/mpi_call_mpi.h"

namespace tessera {
namespace {

/// Returns a tag by which MPI tells apart groups that are made at the same time, unless the hashes
/// of the two collide. MPI ensures that tags up to 32767 exist.
int tag_of(std::span<const int> ranks, std::string_view lane) {
  std::vector<int> members(ranks.begin(), ranks.end());
  std::ranges::sort(members);
  return static_cast<int>(hash(std::as_bytes(std::span(members)), hash(lane)) % 30000);
}

/// Waits until all members have asked for the group, and compares their orders of the ranks.
void await_members(std::span<const int> ranks, std::string_view lane, const Processes& processes,
                   MpiNews& news, MPI_Comm comm, int tag) {
  const int own_rank = processes.rank();
  const uint64_t order = hash(std::as_bytes(ranks));
  std::vector<uint64_t> orders(ranks.size());
  std::vector<MPI_Request> messages(2 * ranks.size(), MPI_REQUEST_NULL);
  const auto receives = std::span(messages).first(ranks.size());
  const auto sends = std::span(messages).last(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == own_rank) continue;
    receives[i] = begin_receive(&orders[i], sizeof order, ranks[i], tag, comm);
    sends[i] = begin_send(&order, sizeof order, ranks[i], tag, comm);
  }
  const std::string group = group_text(ranks, lane);
  wait_for_messages(messages, news, lane, [&](auto waited) {
    if (waited < processes.timeout()) return;
    std::vector<std::string> missing;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (!are_done(receives.subspan(i, 1))) missing.push_back(processes.text(ranks[i]));
    }
    throw Error("{}",
                group_timeout_text(processes.text(own_rank), group, processes.timeout(), missing));
  });
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == own_rank || orders[i] == order) continue;
    throw Error(
        "{} asks for the {}, but {} asks for the same ranks in another order; all ranks of a group "
        "must list them in the same order",
        processes.text(own_rank), group, processes.text(ranks[i]));
  }
}

}  // namespace

MPI_Comm make_group(std::span<const int> ranks, std::string_view lane, const Processes& processes,
                    MpiNews& news, MPI_Comm comm) {
  const int tag = tag_of(ranks, lane);
  await_members(ranks, lane, processes, news, comm, tag);
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm group = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(comm, &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
            "MPI_Group_incl");
  {
    const MeetingWatch watch =
        watch_group(processes.text(processes.rank()), group_text(ranks, lane), processes.timeout());
    check_mpi(MPI_Comm_create_group(comm, members, tag, &group), "MPI_Comm_create_group");
  }
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  return group;
}

}  // namespace tessera
