#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/rank_control.h"
#include "config/run_config.h"
#include "device/accelerator.h"
#include "engine/count_flops.h"
#include "engine/memory_plan.h"
#include "plan/programs.h"

namespace tessera {

/// The work of a phase's steps on one rank.
struct PhaseWork {
  int64_t tokens = 0;         ///< of one micro-batch of a data-parallel rank
  int64_t micro_batches = 1;  ///< of a step
  FlopCount flops;            ///< of one micro-batch
};

/// The work and memory of one rank, known before anything runs. In a run of several phases the
/// memory is for all of them, and the numbers of a step are the first phase's.
struct StepPlan {
  StepPrograms programs;
  MemoryPlan memory;
  int64_t parameters = 0;
  int64_t active_parameters = 0;
  int64_t embedding_parameters = 0;  ///< of the embedding, and of the head unless it is tied
  int64_t input_bytes = 0;           ///< of one micro-batch: tokens, targets and the like
  FlopCount flops;                   ///< of one micro-batch
  int64_t tokens = 0;                ///< of one micro-batch of a data-parallel rank
  int64_t micro_batches = 1;         ///< of a step
  std::vector<PhaseWork> phases;

  MeshRank mesh_rank() const;
};

/// Returns the plan of a resolved configuration (see resolve()) for one rank of a mesh (see
/// mesh_of()), on a machine that need not be this one.
StepPlan plan_step(const RunConfig& config, const Target& target, const MeshRank& mesh_rank = {});
/// Does so with programs of step_programs() that are there already.
StepPlan plan_step(const RunConfig& config, const Target& target, StepPrograms programs);

/// The bytes of an accelerator's memory that a run leaves free for everything outside its plan:
/// cuBLASLt's handle, cuDNN's engines, kernels that load when they first run, and graphs. It is a
/// high estimate and has not been measured for our kernels yet.
inline constexpr int64_t kDeviceReserve = int64_t{1} << 30;

/// Returns the plan of one rank of a run, if the run fits on its machines. All ranks call it.
/// Throws Error on all ranks if one machine or accelerator has too little memory, so that such a
/// run stops before it takes any. The message says what takes the memory and what to change.
///
/// A rank with a GPU must fit into the memory that is free there, less kDeviceReserve. Ranks on the
/// processor must fit into the machine's memory together, with beside_arena_bytes() of each if
/// there are several. So must ranks on emulated devices, which also leave kDeviceReserve free.
/// `accelerator` is null for the processor; `ranks_here` are the ranks on this machine. Ranks of a
/// process share what overlap() finds.
StepPlan plan_step_that_fits(const RunConfig& config, const Target& target,
                             const Accelerator* accelerator, const MeshRank& mesh_rank,
                             const RankControl& control, std::span<const int> ranks_here,
                             FoundOrders& found);

/// Returns the plan of a run of one rank on this machine, as the function above does. Throws Error
/// too if the configuration is laid out over several ranks.
StepPlan plan_step_that_fits(const RunConfig& config, const Accelerator* accelerator = nullptr);

/// Upper bounds of the memory that a rank takes beside its arena if it is one of several threads of
/// a process. kValueBytes is for each value of its programs: the programs and their executor's
/// tables. kRankBytes is for its stack, oneDNN's code and the allocator's memory for a thread. The
/// bounds, 1 KiB and 4.5 MiB, were measured on small models in bf16, which take the most because
/// their products are widened. A test compares the bounds with runs.
inline constexpr int64_t kValueBytes = int64_t{1} << 10;
inline constexpr int64_t kRankBytes = int64_t{9} << 19;

/// Returns the sum of these bounds, plus the bytes of all batches that the rank holds at once.
int64_t beside_arena_bytes(const StepPlan& plan);

/// Returns advice on making a step fit into `usable_bytes` of memory, which are too few for the
/// configuration as it is. `state_bytes` are for weights, gradients and the optimizer's states.
std::string memory_advice(const RunConfig& config, int64_t state_bytes, int64_t usable_bytes);

}  // namespace tessera
