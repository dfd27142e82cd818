#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/words.h"

namespace tessera {

/// The optimizer of hidden matrices. AdamW updates all other parameters (see updated_by()).
enum class OptimizerName { adamw, muon };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<OptimizerName>{"adamw", "muon"};

/// The way in which Muon treats matrices that tensor parallelism splits.
enum class MuonSplit {
  gather,  ///< each rank gathers the whole matrix, orthogonalises it and takes its own piece
  blocks,  ///< each rank orthogonalises its piece: another algorithm, which sends nothing
};
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<MuonSplit>{"gather", "blocks"};

/// The course of the learning rate after the warm-up.
enum class Schedule { cosine, linear, constant };
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<Schedule>{"cosine", "linear", "constant"};

/// The weights that decay: `matrices` (no norms, biases or scales), `all` (Optimus §2.1), or
/// `no_embedding`: matrices except the embedding.
enum class DecayRule { matrices, all, no_embedding };
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<DecayRule>{"matrices", "all",
                                                                     "no_embedding"};

/// The [optimizer] section of a run's configuration.
struct OptimizerConfig {
  OptimizerName name = OptimizerName::adamw;
  double learning_rate = 4e-4;
  double minimum_learning_rate = 4e-5;
  Schedule schedule = Schedule::cosine;
  int64_t warmup_steps = 20;
  double weight_decay = 0.1;
  DecayRule decay_rule = DecayRule::matrices;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-8;
  double clip_norm = 1.0;          ///< 0: no clipping
  bool clip_after_warmup = false;  ///< clip only once the warm-up is over (Optimus §2.1)
  double muon_momentum = 0.95;
  int64_t muon_steps = 5;  ///< the steps of Newton-Schulz
  MuonSplit muon_split = MuonSplit::gather;
};

}  // namespace tessera
