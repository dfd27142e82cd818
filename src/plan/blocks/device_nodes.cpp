#include "plan/blocks/device_nodes.h"

#include "base/error.h"

namespace tessera {

DeviceNodes::DeviceNodes(const Executor& executor, Runtime& runtime)
    : executor_(executor), runtime_(runtime), stream_(runtime.accelerator()->make_stream()) {}

void DeviceNodes::run_node(const Program& program, int number, int index) {
  const Node& node = program.nodes()[static_cast<size_t>(index)];
  const ProgramPlaces& places = executor_.plan().programs[static_cast<size_t>(number)];
  const auto frame = static_cast<size_t>(places.frames.at(0));
  std::vector<Tensor> inputs, outputs;
  // An output that nothing uses has no memory.
  const auto tensor = [&](Value value) {
    const bool has = places.values[frame][static_cast<size_t>(value.id)] >= 0;
    return has ? executor_.tensor(value, number) : Tensor();
  };
  for (const Value input : node.inputs) inputs.push_back(tensor(input));
  for (const Value output : node.outputs) outputs.push_back(tensor(output));
  const int64_t offset = places.workspaces[frame][static_cast<size_t>(index)];
  std::span<std::byte> workspace;
  if (offset >= 0) {
    const int64_t bytes = places.workspace_bytes[static_cast<size_t>(index)];
    const Tensor memory = executor_.arena().at(offset, {bytes}, DType::u8);
    workspace = {static_cast<std::byte*>(memory.address()), static_cast<size_t>(bytes)};
  }
  node.operation->run({runtime_, inputs, outputs, workspace, stream_.get()});
}

double DeviceNodes::run(Segment segment, int number) {
  const Program& program = executor_.program(number);
  nodes_ = segment_nodes(program, segment);
  TESSERA_CHECK(!nodes_.empty(), "the segment {} has no nodes", word(segment));
  while (events_.size() <= nodes_.size()) {
    events_.push_back(runtime_.accelerator()->make_event());
  }
  runtime_.accelerator()->synchronize();  // what the executor was given comes first
  stream_->record(*events_[0]);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    run_node(program, number, nodes_[i]);
    stream_->record(*events_[i + 1]);
  }
  stream_->synchronize();
  seconds_.clear();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    seconds_.push_back(events_[i + 1]->seconds_since(*events_[i]));
  }
  return events_[nodes_.size()]->seconds_since(*events_[0]);
}

}  // namespace tessera
