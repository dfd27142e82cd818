#include "train/evaluate.h"

#include <algorithm>
#include <cmath>

namespace tessera {

ModelConfig inference_config(ModelConfig config) {
  config.capacity_factor = 0;
  config.forced_uniform_routing = false;
  return config;
}

Evaluator::Evaluator(const ModelConfig& config, DType compute, std::span<const Tensor> weights,
                     int64_t rows, int64_t context, bool document_mask, Context& execution)
    : training_(write_forward(inference_config(config), compute, rows, context, document_mask)),
      executor_(training_.program, execution),
      frame_(training_.program),
      inputs_(training_, execution.pool(), frame_),
      rows_(rows) {
  for (size_t i = 0; i < weights.size(); ++i) {
    frame_.bind(training_.parameters.values()[i], weights[i]);
  }
}

Evaluation Evaluator::run(Loader& loader, int64_t instances) {
  Evaluation result;
  result.instances = instances > 0 ? std::min(instances, loader.instances()) : loader.instances();
  double total = 0;
  for (int64_t done = 0; done < result.instances; done += rows_) {
    Batch batch = loader.next();
    // The last batch may reach beyond what is asked for: those rows count nothing.
    const int64_t rows = std::min(rows_, result.instances - done);
    std::fill(batch.targets.begin() + rows * batch.context, batch.targets.end(), -1);
    inputs_.fill(batch);
    executor_.forward(frame_);
    total += sum(frame_[training_.token_loss]);
    result.targets += std::ranges::count_if(batch.targets, [](int32_t t) { return t >= 0; });
  }
  frame_.release();
  result.loss = total / static_cast<double>(std::max<int64_t>(result.targets, 1));
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace tessera
