#pragma once

#include <cstdint>
#include <string>

namespace tessera {

/// The [optimizer] section.
struct OptimizerConfig {
  std::string name = "adamw";
  double learning_rate = 4e-4;
  double minimum_learning_rate = 4e-5;
  std::string schedule = "cosine";  ///< "cosine", "linear", "constant"
  int64_t warmup_steps = 20;
  double weight_decay = 0.1;
  std::string decay_rule =
      "matrices";  ///< "matrices" (no norms), "all" (Optimus §2.1), "no_embedding"
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-8;
  double clip_norm = 1.0;          ///< 0: no clipping
  bool clip_after_warmup = false;  ///< clip only once the warm-up is over (Optimus §2.1)
};

}  // namespace tessera
