#pragma once

#include <cstddef>

#include "comm/processes.h"
#include "comm/rank_control.h"
#include "config/run_config.h"
#include "train/shared_cores.h"
#include "verify/layout_run.h"

namespace tessera {

/// The ranks of a layout, as one of them that is a process. The first rank runs trials, each with
/// the others; those serve it until it is done.
class LayoutProcesses {
 public:
  /// All ranks make it. Throws Error that names a rank with another program or configuration.
  LayoutProcesses(const RunConfig& config, const Mesh& mesh, Processes& processes);

  /// The largest number of all ranks, which all call it.
  size_t largest(size_t own) const;
  /// Takes the trial and the batches, which are the same on all ranks. The first rank says of each
  /// run its precision and the pinned choices. Throws Error if the ranks of a machine do not fit in
  /// its memory. All ranks call it, before all that follows. Refers to the batches.
  void begin(const LayoutTrial& trial, const TrialBatches& batches);

  bool first() const { return control_.first(); }
  /// The ranks that share this machine's cores.
  int of_machine() const { return cores_.ranks; }
  /// Runs a trial on all ranks. Only the first rank calls it. The trial is that of begin()
  /// but for the precision and the choices.
  LayoutResults run(const LayoutTrial& trial);
  /// Takes part in the trials that the first rank runs, until finish(). The other ranks call it.
  void serve();
  /// Lets the other ranks go. The first rank calls it.
  void finish();

 private:
  LayoutResults run_own(const LayoutTrial& trial);

  LayoutTrial trial_{.model = {}, .mesh = {}};
  const TrialBatches* batches_ = nullptr;
  Processes& processes_;
  RankGroups groups_;
  RankControl control_;
  SharedCores cores_;
};

}  // namespace tessera
