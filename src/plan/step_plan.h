#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
/// memory covers all of them, and the numbers of a step are those of the first.
struct StepPlan {
  StepPrograms programs;
  MemoryPlan memory;  ///< the run reserves and takes its arena
  int64_t parameters = 0;
  int64_t active_parameters = 0;
  int64_t embedding_parameters = 0;  ///< of the embedding and of a head of its own
  int64_t input_bytes = 0;           ///< of one micro-batch: tokens, targets and the like
  FlopCount flops;                   ///< of one micro-batch
  int64_t tokens = 0;                ///< of one micro-batch of a data-parallel rank
  int64_t micro_batches = 1;         ///< of a step
  std::vector<PhaseWork> phases;

  /// Returns the rank that the plan is for.
  MeshRank mesh_rank() const;
};

/// Returns the plan of a resolved configuration (see resolve()) for one rank of a mesh (see
/// mesh_of()), on a machine that need not be this one.
StepPlan plan_step(const RunConfig& config, const Target& target, const MeshRank& mesh_rank = {});

/// The bytes of an accelerator's memory that a run leaves free for everything outside its plan:
/// cuBLASLt's handle, cuDNN's engines, kernels that load when they first run, and graphs. It is a
/// high estimate and has not been measured for our kernels yet.
inline constexpr int64_t kDeviceReserve = int64_t{1} << 30;

/// Returns the plan for this machine. Throws Error when the step needs more memory than the machine
/// has, or than the accelerator on which it runs has free beside kDeviceReserve, so that a run that
/// cannot fit stops before it takes any memory. The message says what takes the memory and what to
/// change. `accelerator` is null if the run computes on the processor. Throws Error too if the
/// configuration is laid out over several ranks.
StepPlan plan_step_that_fits(const RunConfig& config, const Accelerator* accelerator = nullptr);

/// Returns the plans for all ranks of a mesh, by rank, if all of them fit on this machine. Throws
/// Error as plan_step_that_fits() does. With several ranks, beside_arena_bytes() counts too. Each
/// rank has a GPU of its own, like `accelerator`; emulated devices share the machine's memory.
std::vector<StepPlan> plan_steps_that_fit(const RunConfig& config, const Mesh& mesh,
                                          const Accelerator* accelerator = nullptr);

/// The memory that ranks of a run take together from one machine or device.
struct MemoryNeeds {
  int ranks = 0;
  int64_t arenas = 0;
  int64_t states = 0;  ///< of the arenas: weights, gradients and the optimizer's states
  int64_t beside = 0;  ///< beside_arena_bytes(), if there are several ranks
};

/// Returns the memory that a rank takes on a device of its own.
MemoryNeeds needs_on_device(const StepPlan& plan);

/// Throws Error, as plan_step_that_fits() does, if this machine or the accelerator has less memory.
void require_fits(const RunConfig& config, const MemoryNeeds& needs,
                  const Accelerator* accelerator = nullptr);

/// Bounds of the memory that a rank takes beside its arena if it is one of several threads of a
/// process. kValueBytes is for each value of its programs: the programs and their executor's
/// tables. kRankBytes is for its stack, oneDNN's code and the allocator's memory for a thread. They
/// are upper bounds, measured on small models in bf16, whose products are widened, which takes the
/// most. A test compares them with runs.
inline constexpr int64_t kValueBytes = int64_t{1} << 10;
inline constexpr int64_t kRankBytes = int64_t{9} << 19;

/// Returns the sum of these bounds, plus the bytes of the batches that the rank reads ahead.
int64_t beside_arena_bytes(const StepPlan& plan);

/// Returns advice on making a step of this configuration fit into `bytes` of memory, which are too
/// few for it as it is. `state_bytes` are those of its weights, gradients and optimizer's states.
std::string memory_advice(const RunConfig& config, int64_t state_bytes, int64_t bytes);

}  // namespace tessera
