#pragma once

#include <cstddef>

#include "comm/processes.h"
#include "comm/rank_control.h"
#include "config/run_config.h"
#include "train/shared_cores.h"
#include "verify/layout_run.h"

namespace tessera {

/// One rank of a layout, whose ranks are processes. The first rank runs trials together with the
/// others, which call serve() until the first one calls finish().
class LayoutProcesses {
 public:
  /// All ranks construct one. Throws Error that names a rank with another program or configuration.
  LayoutProcesses(const RunConfig& config, const Mesh& mesh, Processes& processes);

  /// Returns the largest `own` of all ranks. All ranks call it.
  size_t largest(size_t own) const;
  /// Sets the trial and the batches, which are the same on all ranks; the precision and the pinned
  /// choices of each run come from the first rank. Throws Error if the ranks of a machine do not
  /// fit in its memory. All ranks call it, before the methods below. Keeps a reference to the
  /// batches.
  void begin(const LayoutTrial& trial, const TrialBatches& batches);

  /// Returns whether this is the first rank.
  bool first() const { return control_.first(); }
  /// Returns the number of ranks that share this machine's cores.
  int ranks_on_machine() const { return cores_.ranks; }
  /// Runs a trial on all ranks and returns its results. The trial must be that of begin(), but for
  /// the precision and the choices. Only the first rank calls it.
  LayoutResults run(const LayoutTrial& trial);
  /// Takes part in the trials that the first rank runs, until it calls finish(). The other ranks
  /// call it.
  void serve();
  /// Ends serve() on the other ranks. Only the first rank calls it.
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
