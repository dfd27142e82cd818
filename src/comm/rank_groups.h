#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "device/accelerator.h"

namespace tessera {

/// The lane on which ranks agree between the steps of their programs. The control plane moves its
/// bytes, so these are few.
inline constexpr std::string_view kControlLane = "control";
/// The lane on which ranks that hold copies of the state share what one of them has read.
inline constexpr std::string_view kStateLane = "state";

/// The communicators of one rank of a mesh: one for each group of ranks and each lane. A *lane* is
/// the name of a sequence of calls that has its own order, such as kControlLane. Ranks need not
/// agree on an order between lanes, so two threads can each make calls on their own lane. Any
/// thread may ask for a communicator.
class RankGroups {
 public:
  /// Makes the communicator of this rank in an ordered list of ranks, for a lane.
  using Join = std::function<Communicator(std::span<const int> ranks, std::string_view lane)>;

  /// `end_work` ends the calls of all ranks on all lanes but kControlLane: see World::end_work().
  RankGroups(Mesh mesh, int rank, Join join,
             std::function<void(std::string_view why)> end_work = {})
      : mesh_(std::move(mesh)),
        rank_(rank),
        join_(std::move(join)),
        end_work_(std::move(end_work)) {}

  /// Lets communicators that are made from now on take operands in this accelerator's memory (see
  /// connect_devices()), except on kControlLane and kStateLane. The accelerator must outlive their
  /// calls.
  void use_devices(Accelerator& accelerator, std::chrono::milliseconds timeout) {
    accelerator_ = &accelerator;
    timeout_ = timeout;
  }

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }

  /// Returns the communicator of the ranks of Mesh::group(rank(), axes, stages). The first call
  /// makes it.
  Communicator& over(std::span<const Axis> axes, std::string_view lane,
                     std::span<const int> stages = {});
  Communicator& world(std::string_view lane);  ///< the communicator of all ranks of the mesh

  /// Lets the communicator over(axes, lane) post messages between the ranks' devices, if they have
  /// any, to and from the positions `peers` (connect_posts()). All ranks of the group call it, in
  /// the same order among such calls. Does nothing if they were connected before.
  void connect_posts(std::span<const Axis> axes, std::string_view lane, std::span<const int> peers);

  /// Tells the other ranks that this rank cannot go on with the work of the programs, and why.
  /// Calls in which they wait for that work throw Error. The ranks still meet on kControlLane.
  void end_work(std::string_view why) const {
    if (end_work_) end_work_(why);
  }

 private:
  Communicator& find_or_make(std::vector<int> ranks, std::string_view lane);

  Mesh mesh_;
  int rank_;
  Join join_;
  std::function<void(std::string_view why)> end_work_;
  Accelerator* accelerator_ = nullptr;
  std::chrono::milliseconds timeout_{};  // for the devices' work
  std::mutex mutex_;                     // guards communicators_
  std::map<std::pair<std::vector<int>, std::string>, Communicator> communicators_;
};

}  // namespace tessera
