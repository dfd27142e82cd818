#include "ops/attention/cudnn/plan_cuda.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

/// Returns the engines that cuDNN's heuristics propose for a graph on a device, best first, if any.
std::vector<CudnnDescriptor> engine_configs(const CudnnLibrary& library,
                                            const CudnnDescriptor& graph,
                                            const CudnnPlanDevice& device) {
  CudnnDescriptor heuristics(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (device.description != nullptr) {
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device.description);
  }
  std::vector<CudnnDescriptor> configs;
  if (heuristics.try_finalize() != CUDNN_STATUS_SUCCESS) return configs;
  // cuDNN fills descriptors that the caller has made: first it says how many it may need.
  const int64_t limit = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       std::span<cudnnBackendDescriptor_t>());
  std::vector<cudnnBackendDescriptor_t> pointers;
  for (int64_t i = 0; i < limit; ++i) {
    configs.emplace_back(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    pointers.push_back(configs.back().get());
  }
  const int64_t count = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       std::span(pointers));
  while (std::ssize(configs) > count) configs.pop_back();
  return configs;
}

/// Returns whether an engine's results may differ from run to run, according to cuDNN.
bool may_differ(const CudnnLibrary& library, const CudnnDescriptor& config) {
  const CudnnDescriptor engine(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t pointer = engine.get();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::span(&pointer, 1));
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   std::span<cudnnBackendNumericalNote_t>(notes));
  return std::ranges::count(std::span(notes).first(static_cast<size_t>(count)),
                            CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) > 0;
}

/// Throws Error for a backward pass that cuDNN up to 9.15.0 computes wrongly: if the last tile of
/// keys is not whole, and no lengths are given. Packed documents give lengths.
void expect_whole_tiles(const CudnnLibrary& library, const CudnnAttentionKind& kind) {
  constexpr size_t kLastWithError = 91500;
  constexpr int64_t kTileKeys = 128;
  if (kind.documents == CudnnDocuments::packed) return;
  if (library.version > kLastWithError || !kind.backward || kind.sequence % kTileKeys == 0) return;
  throw Error(
      "cuDNN {} computes the gradient of attention only on sequences of a multiple of {} tokens, "
      "not on {}: change data.context, or install cuDNN 9.15.1 or a newer 9",
      library.version_text(), kTileKeys, kind.sequence);
}

}  // namespace

CudnnAttentionPlan::CudnnAttentionPlan(const CudnnLibrary& library, const CudnnPlanDevice& device,
                                       const CudnnAttentionKind& kind)
    : graph_(library) {
  expect_whole_tiles(library, kind);
  kind.backward ? write_attention_backward(graph_, kind) : write_attention_forward(graph_, kind);
  const CudnnDescriptor& graph = graph_.finish(device.handle);
  std::string failures;
  const auto fails = [&](const std::string& why) {
    failures += (failures.empty() ? "" : "; ") + why;
  };
  for (CudnnDescriptor& config : engine_configs(library, graph, device)) {
    if (kind.deterministic && may_differ(library, config)) {
      fails("an engine is not deterministic (run.deterministic)");
      continue;
    }
    auto plan = std::make_unique<CudnnDescriptor>(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (device.handle != nullptr) {
      plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, device.handle);
    }
    const cudnnStatus_t status = plan->try_finalize();
    if (status != CUDNN_STATUS_SUCCESS) {
      fails(library.last_failure(status));
      continue;
    }
    workspace_bytes_ = plan->get_number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    config_ = std::make_unique<CudnnDescriptor>(std::move(config));
    plan_ = std::move(plan);
    return;
  }
  if (failures.empty()) failures = "it proposes no engine";
  throw Error("cuDNN {} has no plan for {} on this device: {}", library.version_text(), text(kind),
              failures);
}

}  // namespace tessera
