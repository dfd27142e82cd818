#pragma once

#include <span>
#include <vector>

#include "comm/processes.h"
#include "comm/rank_control.h"
#include "config/run_config.h"
#include "train/layout_run.h"
#include "train/shared_cores.h"

namespace tessera {

/// The ranks of a layout, as one of them that is a process. The first rank runs trials, each with
/// the others; those serve it until it is done.
class LayoutProcesses {
 public:
  /// All ranks make it with the same trial and steps. The first rank says of each run its precision
  /// and the pinned choices.
  LayoutProcesses(const LayoutTrial& trial, std::span<const std::vector<Batch>> steps,
                  Processes& processes);

  /// Throws Error that names a rank with another program or configuration, and Error if the ranks
  /// of a machine do not fit in its memory. All ranks call it.
  void require_ready(const RunConfig& config) const;

  bool first() const { return control_.first(); }
  /// The ranks that share this machine's cores.
  int of_machine() const { return cores_.ranks; }
  /// Runs a trial on all ranks. Only the first rank calls it. The trial is that of the constructor
  /// but for the precision and the choices.
  LayoutResults run(const LayoutTrial& trial);
  /// Takes part in the trials that the first rank runs, until finish(). The other ranks call it.
  void serve();
  /// Lets the other ranks go. The first rank calls it.
  void finish();

 private:
  LayoutResults run_own(const LayoutTrial& trial);

  LayoutTrial trial_;
  std::span<const std::vector<Batch>> steps_;
  Processes& processes_;
  RankGroups groups_;
  RankControl control_;
  SharedCores cores_;
};

}  // namespace tessera
