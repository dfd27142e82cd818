#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <mpi.h>

#include "base/error.h"
#include "base/hash.h"
#include "comm/call_errors.h"
#include "comm/checked_transport.h"
#include "comm/launch.h"
#include "comm/mpi/join_by_mpi.h"
#include "comm/mpi/meeting_watch_mpi.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/mpi_group_mpi.h"
#include "comm/mpi/mpi_progress_mpi.h"
#include "comm/mpi/mpi_transport_mpi.h"
#include "comm/processes.h"
#include "comm/rank_groups.h"
#include "comm/tcp/first_process.h"
#include "comm/tcp/job_token.h"
#include "comm/tcp/other_process.h"
#include "comm/tcp/tcp_listener.h"
#include "comm/tcp/wire.h"

namespace tessera {
namespace {

/// The time in which a rank must reach the first one, which listens before the others know where.
constexpr std::chrono::milliseconds kConnectPatience{30'000};

/// The time that the launcher has to name a process that was killed, and to end the others, before
/// this process ends the run. The control plane may know of it earlier.
constexpr std::chrono::seconds kLauncherTime{1};

/// Returns a new communicator of all processes. Its calls return errors.
MPI_Comm copy_of_world() {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return copy;
}

/// The processes of a run, joined by MPI. They meet on a control plane, as they do without MPI. MPI
/// moves the bytes of all lanes but kControlLane.
///
/// MPI waits for ever for a rank that does not come. So the members of a group meet on the control
/// plane before MPI makes their communicator, and the calls of a group do not block (MpiGroup).
/// MeetingWatch guards what is left: MPI's start and end, and the making of a communicator.
class MpiProcesses final : public Processes {
 public:
  MpiProcesses(std::unique_ptr<PlaneProcess> plane, MPI_Comm world)
      : plane_(std::move(plane)), world_(world) {}
  ~MpiProcesses() override {
    progress_.stop();
    // All ranks have said that their work has ended.
    const MeetingWatch end(
        fmt::format("{} has done all of its work, but {} another rank is not in MPI_Finalize: it "
                    "is stopped, or cannot be reached",
                    text(rank()), waited_text(timeout())),
        timeout());
    MPI_Finalize();
  }

  int rank() const override { return plane_->rank(); }
  std::span<const std::string> hosts() const override { return plane_->hosts(); }
  void set_timeout(std::chrono::milliseconds timeout) override { plane_->set_timeout(timeout); }
  std::chrono::milliseconds timeout() const override { return plane_->timeout(); }

  std::unique_ptr<Transport> transport(std::span<const int> ranks, std::string_view lane) override {
    std::unique_ptr<Transport> by_plane = plane_->transport(ranks, lane);
    if (lane == kControlLane) return by_plane;
    const std::vector<int> members(ranks.begin(), ranks.end());
    MPI_Comm comm = make_communicator(ranks, lane);
    const std::scoped_lock lock(mutex_);
    groups_.emplace_back(comm, members, std::string(lane), *plane_, progress_);
    return checked_transport(
        mpi_transport(groups_.back()), std::move(by_plane),
        [this, members, lane = std::string(lane)] { return plane_->transport(members, lane); },
        *this);
  }

  void end_work(std::string_view why) override { plane_->end_work(why); }
  Report report_end(std::string_view error, std::chrono::milliseconds patience) override {
    return plane_->report_end(error, patience);
  }
  bool all_ended() const override { return plane_->all_ended(); }
  [[noreturn]] void abort(int status) override {
    std::this_thread::sleep_for(kLauncherTime);
    plane_->end_others(status);
    MPI_Abort(MPI_COMM_WORLD, status);  // also ends processes that are stopped
    std::abort();  // not reached, but MPI does not declare MPI_Abort() as [[noreturn]]
  }

 private:
  /// Makes MPI's communicator of ranks that have met.
  MPI_Comm make_communicator(std::span<const int> ranks, std::string_view lane) const {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_group(world_, &all), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
              "MPI_Group_incl");
    // The tag tells apart groups that are made at the same time, unless the hashes of the two
    // collide. MPI ensures that tags up to 32767 exist.
    const auto tag = static_cast<int>(hash(std::as_bytes(ranks), hash(lane)) % 30000);
    {
      const MeetingWatch watch(
          fmt::format("{} makes the {}, for which all of its ranks have asked, but {} one of them "
                      "is not in MPI_Comm_create_group: it is stopped, or cannot be reached. Each "
                      "that is there says so",
                      text(rank()), group_text(ranks, lane), waited_text(timeout())),
          timeout());
      check_mpi(MPI_Comm_create_group(world_, members, tag, &comm), "MPI_Comm_create_group");
    }
    MPI_Group_free(&members);
    MPI_Group_free(&all);
    return comm;
  }

  std::unique_ptr<PlaneProcess> plane_;
  MPI_Comm world_;  // all processes, to make communicators
  MpiProgress progress_;
  std::mutex mutex_;  // guards groups_
  std::list<MpiGroup> groups_;
};

/// Initializes MPI for calls by several threads. Throws Error if this MPI does not support them.
void initialize_mpi() {
  // By default, a rank that waits keeps a core from the threads that compute. If there are more
  // ranks than cores, a step then takes twenty times as long. Values that the user has set stay.
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
  // By default, Open MPI handles SIGSEGV, SIGBUS, SIGFPE and SIGABRT, and prints the stack. Its
  // handlers would overwrite the heap if they interrupt a kernel (see SignalThread). Without them
  // the system ends the process, and mpirun names the signal.
  ::setenv("OMPI_MCA_opal_signal", "", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided == MPI_THREAD_MULTIPLE) return;
  throw Error(
      "this MPI cannot be called by several threads (MPI_THREAD_MULTIPLE); build Tessera with one "
      "that can, such as Open MPI");
}

/// Throws Error if MPI does not find all processes that the launcher started.
void require_meeting(const Launch& launch) {
  const int processes = ranks_of(MPI_COMM_WORLD);
  if (processes == launch.processes) return;
  throw Error(
      "{} started {} processes, but this one finds {} of them by MPI: each would train alone. "
      "Start them by the mpirun of the MPI that Tessera was built with, or by srun with the "
      "interface that this MPI speaks (srun --mpi=list); or set {} to the first rank's machine and "
      "a port, by which they meet without MPI",
      launch.launcher, launch.processes, processes, kAddressVariable);
}

/// How the first rank can be reached, as it tells the others by MPI.
struct Invitation {
  std::string error;  ///< why it cannot; empty if it can
  std::string token;  ///< the secret of the run
  std::vector<TcpAddress> addresses{};
};

std::string fresh_token() {
  std::string token;
  for (const std::byte byte : fresh_nonce()) {
    token += fmt::format("{:02x}", std::to_integer<int>(byte));
  }
  return token;
}

/// Returns the invitation of the first rank, on all ranks. On the first, `listener` listens then.
Invitation share_invitation(MPI_Comm world, std::optional<TcpListener>& listener) {
  WireWriter letter;
  if (position_in(world) == 0) {
    Invitation own;
    try {
      listener.emplace(TcpAddress{});
      own = {"", fresh_token(), own_addresses(listener->port())};
    } catch (const Error& error) {
      own.error = error.what();
    }
    letter.put(own.error, own.token, std::ssize(own.addresses));
    for (const TcpAddress& address : own.addresses) letter.put(address.host, address.port);
  }
  int64_t bytes = std::ssize(letter.bytes());
  check_mpi(MPI_Bcast(&bytes, sizeof bytes, MPI_BYTE, 0, world), "MPI_Bcast");
  std::vector<std::byte> memory(letter.bytes().begin(), letter.bytes().end());
  memory.resize(static_cast<size_t>(bytes));
  check_mpi(MPI_Bcast(memory.data(), static_cast<int>(bytes), MPI_BYTE, 0, world), "MPI_Bcast");
  WireReader reader(memory);
  Invitation invitation{.error = reader.take_text(), .token = reader.take_text()};
  for (auto left = reader.take<int64_t>(); left > 0; --left) {
    TcpAddress& address = invitation.addresses.emplace_back();
    reader.take_into(address.host, address.port);
  }
  return invitation;
}

}  // namespace

std::unique_ptr<Processes> join_by_mpi(const Launch& launch, std::chrono::milliseconds patience) {
  std::optional<TcpListener> listener;
  MPI_Comm world = MPI_COMM_NULL;
  Invitation invitation;
  {
    // Each process that has come says so: those that say nothing are the missing ones.
    const MeetingWatch start(
        fmt::format("rank {} ({}) is here, but {} not all of the {} processes that {} started are. "
                    "Each that is here says so: find out what holds up the others, and whether "
                    "their machines reach this one",
                    launch.rank, own_host(), waited_text(patience), launch.processes,
                    launch.launcher),
        patience);
    initialize_mpi();
    require_meeting(launch);
    world = copy_of_world();
    invitation = share_invitation(world, listener);
  }
  if (!invitation.error.empty()) throw Error("{}", invitation.error);
  const int rank = position_in(world);
  std::unique_ptr<PlaneProcess> plane;
  if (rank == 0) {
    plane = std::make_unique<FirstProcess>(*listener, launch.processes, own_host(),
                                           invitation.token, patience);
  } else {
    plane = std::make_unique<OtherProcess>(invitation.addresses, launch.processes, rank, own_host(),
                                           invitation.token, std::min(patience, kConnectPatience));
  }
  return std::make_unique<MpiProcesses>(std::move(plane), world);
}

}  // namespace tessera
