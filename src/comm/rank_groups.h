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

/// The lane on which ranks agree between the steps of their programs, and bring their state
/// together.
inline constexpr std::string_view kControlLane = "control";

/// The groups in which one rank of a mesh meets the others. Each lane has its own communicators,
/// because the order of calls on one says nothing of that on another.
class RankGroups {
 public:
  /// Makes the communicator of this rank in an ordered list of ranks, for a lane.
  using Join = std::function<Communicator(std::span<const int> ranks, std::string_view lane)>;

  /// Ends the calls of all ranks on all lanes but kControlLane: see World::end_work().
  using EndWork = std::function<void(std::string_view why)>;

  RankGroups(Mesh mesh, int rank, Join join, EndWork end_work = {})
      : mesh_(std::move(mesh)),
        rank_(rank),
        join_(std::move(join)),
        end_work_(std::move(end_work)) {}

  /// Lets the communicators that are made from now on take operands of this accelerator's memory
  /// (see connect_devices()), but for those of kControlLane. It must outlive their calls.
  void use_devices(Accelerator& accelerator, std::chrono::milliseconds timeout) {
    accelerator_ = &accelerator;
    timeout_ = timeout;
  }

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }

  /// The communicator of the ranks that differ from this one along `axes` alone, in the order of
  /// their positions, the first of the axes being the innermost. It is made at the first call, for
  /// which nobody waits. All axes are of one view. Several threads may ask for one.
  Communicator& over(std::span<const Axis> axes, std::string_view lane);
  /// The communicator of all ranks of the mesh.
  Communicator& world(std::string_view lane);

  /// Says that this rank cannot go on with the work of the programs, and why. What other ranks wait
  /// for in it ends by an error, and they still meet on kControlLane.
  void end_work(std::string_view why) const {
    if (end_work_) end_work_(why);
  }

 private:
  Communicator& find(std::vector<int> ranks, std::string_view lane);

  Mesh mesh_;
  int rank_;
  Join join_;
  EndWork end_work_;
  Accelerator* accelerator_ = nullptr;
  std::chrono::milliseconds timeout_{};  // of the devices' work
  std::mutex mutex_;                     // of communicators_
  std::map<std::pair<std::vector<int>, std::string>, Communicator> communicators_;
};

}  // namespace tessera
