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

/// What one rank holds and does, known before anything runs. In a run of several phases the memory
/// is that of all of them, and the numbers of a step are the first one's.
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

  /// The rank that it is the plan of.
  MeshRank place() const;
};

/// Plans a resolved configuration (see resolve()) for a machine, which need not be this one, and
/// for one rank of a mesh (see mesh_of()).
StepPlan plan_step(const RunConfig& config, const Target& target, const MeshRank& place = {});

/// The bytes of an accelerator's memory that a run leaves to what is not in its plan: cuBLASLt's
/// handle, cuDNN's engines, kernels that load when they first run, and graphs. It is an estimate
/// from above: nobody has measured it for our kernels yet.
inline constexpr int64_t kDeviceReserve = int64_t{1} << 30;

/// The same for this machine. Throws Error when the step needs more memory than the machine has, or
/// than the accelerator on which it runs has free beside kDeviceReserve: a run that cannot fit is
/// refused before it takes any memory. The message says what takes the memory and what to change.
/// `accelerator` is null if the run computes on the processor. Throws Error too if the
/// configuration is laid out over several ranks.
StepPlan plan_step_that_fits(const RunConfig& config, const Accelerator* accelerator = nullptr);

/// The same for all ranks of a mesh, which are on this machine together; by rank. Of several ranks
/// beside_arena_bytes() count too. Each has a GPU of its own, like `accelerator`; emulated devices
/// share the machine's memory.
std::vector<StepPlan> plan_steps_that_fit(const RunConfig& config, const Mesh& mesh,
                                          const Accelerator* accelerator = nullptr);

/// What ranks of a run take together of one memory.
struct MemoryNeeds {
  int ranks = 0;
  int64_t arenas = 0;
  int64_t states = 0;  ///< of the arenas: weights, gradients and the optimizer's states
  int64_t beside = 0;  ///< beside_arena_bytes(), of several ranks
};

/// What a rank takes of the memory of a device of its own.
MemoryNeeds needs_on_device(const StepPlan& plan);

/// Throws Error, as plan_step_that_fits() does, if this machine or the accelerator has less.
void require_fits(const RunConfig& config, const MemoryNeeds& needs,
                  const Accelerator* accelerator = nullptr);

/// What a rank that is one of several threads of a process takes beside its arena: its programs and
/// their executor's tables, which grow with their values, and its stack, oneDNN's code and what the
/// allocator keeps for a thread. Measured in small models in bf16, whose products are widened,
/// which takes the most; from above; a test compares.
inline constexpr int64_t kValueBytes = int64_t{1} << 10;
inline constexpr int64_t kRankBytes = int64_t{9} << 19;

/// All of that, and the batches that the rank reads ahead.
int64_t beside_arena_bytes(const StepPlan& plan);

/// Says what makes a step of this configuration fit into `bytes` of memory, into which it does not
/// fit as it is. `state_bytes` are those of its weights, gradients and optimizer's states.
std::string memory_advice(const RunConfig& config, int64_t state_bytes, int64_t bytes);

}  // namespace tessera
