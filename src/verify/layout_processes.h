#pragma once

#include <cstddef>

#include "comm/processes.h"
#include "comm/rank_control.h"
#include "config/run_config.h"
#include "train/shared_cores.h"
#include "verify/layout_run.h"

namespace tessera {

/// This process as one rank of a layout. The first rank decides which trials run: it calls run()
/// for each, then finish(). The other ranks call serve(), which takes part in these trials.
class LayoutProcesses {
 public:
  /// All ranks construct one. Throws Error that names a rank with another program or configuration.
  LayoutProcesses(const RunConfig& config, const Mesh& mesh, Processes& processes);

  /// Returns the largest `own` of all ranks. All ranks call it.
  size_t largest_of_ranks(size_t own) const;
  /// Sets the trial and the batches, which must be the same on all ranks. All ranks call it before
  /// the first run. Each run has the precision and the pinned choices that the first rank gives it.
  /// Keeps a reference to the batches. Throws Error if a machine's ranks do not fit in its memory.
  void begin(const LayoutTrial& trial, const TrialBatches& batches);

  bool is_first() const { return control_.is_first(); }
  /// Returns the number of ranks that share this machine's cores.
  int ranks_on_machine() const { return cores_.ranks; }
  /// On the first rank: runs a trial on all ranks and returns its results. The trial must be the
  /// one of begin(), except for the precision and the choices.
  LayoutResults run(const LayoutTrial& trial);
  /// On the other ranks: takes part in the trials of the first rank, until it calls finish().
  void serve();
  /// On the first rank: ends serve() on the others.
  void finish();

 private:
  /// Runs this rank's part of a trial. Returns the results on the first rank, nothing on others.
  LayoutResults run_own(const LayoutTrial& trial);

  LayoutTrial trial_{.model = {}, .mesh = {}};
  const TrialBatches* batches_ = nullptr;
  Processes& processes_;
  RankGroups groups_;
  RankControl control_;
  SharedCores cores_;
};

}  // namespace tessera
