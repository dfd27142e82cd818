#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/in_process/meeting.h"
#include "comm/wait_time.h"

namespace tessera {

/// All ranks of a run, as they meet in the memory of this process. Each rank is a thread here, or
/// another process for which a thread here makes the calls (serve_rank()). The world must outlive
/// the communicators that it makes. Any thread may call any function at any time.
///
/// The ranks communicate in groups. A *lane* is a name that separates communicators of the same
/// ranks, each with its own order of calls: one for each role in the work of programs ("exchanges",
/// "reductions"), kControlLane for agreement between steps. Work that has one lane needs no name.
class World {
 public:
  /// Creates a world in which a call fails if it waits longer than `timeout` for another rank.
  /// `hosts` are the ranks' machines, for messages; empty if all ranks are threads of this process.
  explicit World(int ranks, std::chrono::milliseconds timeout = kRankTimeout,
                 std::vector<std::string> hosts = {});
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int ranks() const { return ranks_; }

  /// Returns the communicator of `rank` in a group: an ordered list of ranks, one of which is
  /// `rank`. Every rank of the group asks for it with the same list; the call does not wait. The
  /// communicator's destructor leaves the group. A rank that has left may ask again, and is then in
  /// a new group with the others that do. Throws Error if another rank asked for the same ranks in
  /// another order, or if the world, or the work on this lane, has failed (see fail() and
  /// end_work()).
  Communicator group(int rank, std::span<const int> ranks, std::string_view lane = "work");
  /// Returns what group() does, as a Transport alone.
  std::unique_ptr<Transport> transport(int rank, std::span<const int> ranks, std::string_view lane);
  /// Waits until all ranks of a group, for which `rank` has asked, have asked for it too. Throws
  /// Error that names the ranks that do not ask in time. Also throws if the world fails.
  void await_group(int rank, std::span<const int> ranks, std::string_view lane);

  /// Sets the time that the calls of a rank wait for others from now on.
  void set_timeout(int rank, std::chrono::milliseconds timeout) {
    timeouts_[static_cast<size_t>(rank)] = timeout;
  }
  /// Returns the name of a rank in messages, with its machine if `hosts` were given.
  std::string text(int rank) const;
  std::chrono::milliseconds timeout(int rank) const { return timeouts_[static_cast<size_t>(rank)]; }

  /// Returns why calls on a lane fail; none if they do not.
  std::optional<std::string> failure(std::string_view lane) const;
  /// Returns the last call of a rank in each of its groups here.
  std::vector<LastCall> last_calls(int rank) const;

  /// A function that says what each of some ranks did last, for messages.
  using Describe = std::function<std::vector<std::string>(std::span<const int> ranks)>;
  /// Lets another function than last_calls() say what ranks did last. The first group is made
  /// later.
  void describe_by(Describe describe) { describe_ = std::move(describe); }

  /// Notes that a rank has ended and makes no more calls. Calls that need the rank, in all groups,
  /// throw Error that names the call and the rank.
  void end(int rank);
  /// Notes that a rank has ended by an error. Waiting and later calls of all groups throw Error
  /// with this message. If several ranks fail, the first failure counts.
  void fail(int rank, std::string_view message) { fail(rank, message, /*work_only=*/false); }
  /// Notes a failure as fail() does, except on kControlLane, where ranks then agree what to do.
  void end_work(int rank, std::string_view message) { fail(rank, message, /*work_only=*/true); }
  /// Notes a failure of the work only, as end_work() does, or of all lanes.
  void fail(int rank, std::string_view message, bool work_only);

 private:
  struct Group {
    std::vector<int> members;  // in ascending order
    std::vector<int> joined;   // the ranks that asked for it
    std::vector<int> left;     // those of them that have left it
    std::shared_ptr<Meeting> meeting;

    bool is_of(const std::vector<int>& sorted_ranks, std::string_view lane) const;
    bool has_had(int rank) const { return std::ranges::find(joined, rank) != joined.end(); }
    bool has_now(int rank) const {
      return has_had(rank) && std::ranges::find(left, rank) == left.end();
    }
  };

  Group& join(int rank, std::span<const int> ranks, std::string_view lane);
  void leave(int rank, size_t position, const Meeting* meeting);
  std::vector<std::shared_ptr<Meeting>> meetings() const;
  /// Returns why calls on a lane fail; none if they do not.
  const std::optional<std::string>& failure_of(std::string_view lane) const;
  std::vector<std::string> describe(std::span<const int> ranks) const;

  const int ranks_;
  const std::vector<std::string> hosts_;
  Describe describe_;
  std::vector<std::atomic<std::chrono::milliseconds>> timeouts_;  // by rank
  mutable std::mutex mutex_;                                      // guards what follows
  std::condition_variable changed_;
  std::vector<Group> groups_;
  std::map<int, LastCall> left_calls_;       // by rank: its last call in a group that it has left
  std::vector<int> ended_;                   // ranks that make no more calls
  std::optional<std::string> failure_;       // of all lanes
  std::optional<std::string> work_failure_;  // of all but kControlLane
};

/// Calls body(rank) for every rank of the world, each on a thread of its own, and waits for all of
/// them. No body begins before all threads are started; throws Error if the system refuses one. A
/// rank whose body has returned makes no more calls (World::end()). If bodies throw, World::fail()
/// wakes the others, and this function rethrows the earliest exception.
void run_ranks(World& world, const std::function<void(int rank)>& body);

}  // namespace tessera
