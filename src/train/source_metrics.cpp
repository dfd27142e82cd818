#include "train/source_metrics.h"

#include <algorithm>

namespace tessera {

std::vector<SourceMetrics> source_metrics(const TrainingData& data, const LoaderState& position) {
  std::vector<SourceMetrics> result;
  for (size_t i = 0; i < data.sources.size(); ++i) {
    const SourcePosition& source = position.sources[i];
    const InstanceSource& all = *data.sources[i].instances;
    const int64_t instances = all.instances(Split::train);
    const int64_t drawn = source.epoch * instances + source.instance;
    result.push_back({data.sources[i].name,
                      drawn * all.context(),
                      static_cast<double>(drawn) / static_cast<double>(instances),
                      {}});
  }
  return result;
}

void add_held_out(StepMetrics& metrics, std::span<const SourceEvaluation> evaluations) {
  metrics.held_out_loss = mean_evaluation(evaluations).loss;
  for (SourceMetrics& source : metrics.sources) {
    const auto found = std::ranges::find(evaluations, source.name, &SourceEvaluation::name);
    if (found != evaluations.end()) source.held_out_loss = found->evaluation.loss;
  }
}

}  // namespace tessera
