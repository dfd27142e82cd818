#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/data_config.h"
#include "device/device.h"
#include "engine/rematerialize.h"
#include "model/expert_layout.h"
#include "model/model_config.h"
#include "state/optimizer_config.h"
#include "state/shard_config.h"
#include "tensor/dtype.h"

namespace tessera {

/// The [run] section.
struct RunSection {
  std::string directory = "runs/demo";  ///< the folder that a run writes everything to
  Device device = Device::cpu;
  /// True to make equal runs give equal bits on a GPU too; on the processor they always do.
  bool deterministic = true;
  int64_t threads = 0;       ///< of all ranks together; 0: all usable cores
  bool bind_threads = true;  ///< each thread keeps to a core, if there are exactly as many
  bool graphs = true;        ///< capture a device's repeated work once, and launch it as a whole
  /// The steps between comparisons of the data that several ranks must hold alike; 0: never.
  int64_t check_replicas = 0;
  int64_t rank_timeout = 1800;  ///< seconds that a rank waits for the others
  bool check_calls = false;     ///< processes compare each call before they make it
  int64_t trace_step = 0;       ///< the step whose trace is written to trace.json; 0: none
  bool tensorboard = true;      ///< write TensorBoard's events to tensorboard/
  /// The file that `tessera bench all` wrote. MFU refers to its rate of matrix products. Empty: the
  /// rate is measured at the start.
  std::string hardware;
  /// The file that `tessera bench products` wrote, for products on the device cuda. Empty: their
  /// library chooses algorithms.
  std::string tuned_products;
  bool csv = false;  ///< write metrics.csv beside metrics.jsonl
};

/// One [[train.phases]]: a stretch of the run. Keys that it leaves out have the sections' values
/// (see phases_of()).
struct PhaseConfig {
  std::string name;               ///< in reports and pictures; empty: by its number
  std::optional<int64_t> steps;   ///< optimizer steps; this or `tokens`
  std::optional<int64_t> tokens;  ///< training takes as many steps as these tokens need
  std::optional<int64_t> context;
  std::optional<int64_t> global_batch;
  std::optional<int64_t> micro_batch;
  std::optional<double> rope_theta;
  /// "NAME" or "NAME=WEIGHT" of [[data.sources]]; empty: all of them, with their own weights.
  std::vector<std::string> sources;
  std::optional<double> learning_rate;
  std::optional<double> minimum_learning_rate;
  std::optional<Schedule> schedule;
  std::optional<int64_t> warmup_steps;
};

/// The [train] section.
struct TrainSection {
  int64_t steps = 300;        ///< optimizer steps, of all phases together
  int64_t stop_after = 0;     ///< save and exit after this step of the schedule; 0: after `steps`
  int64_t micro_batch = 8;    ///< sequences of one data-parallel rank
  int64_t global_batch = 16;  ///< sequences of all ranks; a multiple of their micro-batches
  Precision precision = Precision::bf16;
  /// On the device cuda, products of fp32 round their operands to TF32: some eight times as fast,
  /// with 10 bits after the point instead of 23. Products of experts do not: a plain kernel of ours
  /// computes them in fp32.
  bool tf32 = false;
  std::vector<RecomputedBlock> recompute;
  std::vector<int64_t> recompute_stages;  ///< the pipeline stages that recompute; empty: all
  uint64_t seed = 1;
  int64_t evaluate_every = 0;    ///< steps between evaluations on held-out data; 0: none
  int64_t evaluate_batches = 8;  ///< micro-batches per evaluation
  std::vector<PhaseConfig> phases;
};

/// The [checkpoint] section.
struct CheckpointSection {
  int64_t every = 100;     ///< steps; 0: only at the end
  int64_t keep = 2;        ///< the newest checkpoints that stay (dual checkpointing, Optimus §4)
  int64_t keep_every = 0;  ///< multiples of this many steps are kept for good; 0: none
  std::string initial;     ///< the checkpoint that gives a new run its weights; empty: none
};

/// How many layers of the model each chunk of a pipeline has (see chunk_ranges()).
struct StageLayers {
  std::vector<int64_t> counts;  ///< by chunk, in the model's order; empty: left out
  bool balanced = false;        ///< true for counts that follow from the costs of the parts

  bool operator==(const StageLayers&) const = default;
};

/// A number of bytes, which files write as "512 MiB".
struct ByteCount {
  int64_t count = 0;

  bool operator==(const ByteCount&) const = default;
};

/// The [parallel] section: the sizes of the mesh's axes, and the pipeline. Data parallelism uses
/// all ranks that these sizes leave (see mesh_of()).
struct ParallelSection {
  int64_t tensor = 1;          ///< ranks that split each matrix, and the positions between matrices
  int64_t context = 1;         ///< ranks that share the positions of a sequence
  int64_t pipeline = 1;        ///< stages
  int64_t virtual_stages = 1;  ///< chunks of the model on each stage
  /// A word of ScheduleKind, or the path of a schedule file. Empty: see schedule_kind().
  std::string schedule;
  /// The micro-batches that a chunk takes one after the other; 0: see PipelineShape.
  int64_t consecutive_micro_batches = 0;
  StageLayers stage_layers;
  int64_t expert = 1;  ///< ranks that share the experts of a layer
  ExpertExchange expert_exchange = ExpertExchange::automatic;
  double expert_rows_bound = 0;  ///< most rows of a rank over those of an even load; 0: no bound
  TokenSet capacity_tokens = TokenSet::micro_batch;  ///< the tokens that expert capacity counts
  /// The levels of the network, innermost first: the ranks of the innermost group, then how many of
  /// these groups are in the next one, and so on, up to the node. Gradients are summed level by
  /// level. Empty: as the ranks run on packages and machines (see find_levels()).
  std::vector<int64_t> levels;
  bool overlap = true;  ///< whether communication runs beside computing (see overlap_step.h)
  /// The bytes that may be in use for that at once, beyond what the order as written takes.
  ByteCount overlap_memory{int64_t{512} << 20};
};

/// All settings of a run, as in one TOML file.
struct RunConfig {
  RunSection run;
  ModelConfig model;
  DataConfig data;
  TrainSection train;
  ParallelSection parallel;
  ShardConfig shard;
  OptimizerConfig optimizer;
  CheckpointSection checkpoint;
  std::string file;  ///< the file that it was read from, for messages; empty: none
  /// The keys that the file or an override sets: "train.steps", "train.phases.1.context".
  std::set<std::string> given;
};

}  // namespace tessera
