#pragma once

// Changes to programs that were written and checked: mistakes that no type can see.

#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/programs.h"

namespace tessera::testing {

/// An operation that is run by a function instead. All else about it stays as it was.
class ChangedOperation final : public Operation {
 public:
  using Run = std::function<void(const Operation&, const Execution&)>;
  ChangedOperation(std::shared_ptr<const Operation> base, Run run)
      : base_(std::move(base)), run_(std::move(run)) {}

  std::string_view name() const override { return base_->name(); }
  std::string labels(std::span<const Spec> inputs) const override { return base_->labels(inputs); }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return base_->infer(inputs);
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return base_->cost(inputs, outputs);
  }
  Lane lane() const override { return base_->lane(); }
  std::vector<std::vector<Axis>> group_axes() const override { return base_->group_axes(); }
  std::span<const int> group_stages() const override { return base_->group_stages(); }
  void list_calls(const CallListing& listing) const override { base_->list_calls(listing); }
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    return base_->workspace_bytes(target, inputs);
  }
  std::vector<int> updated_inputs() const override { return base_->updated_inputs(); }
  std::optional<View> view(int output) const override { return base_->view(output); }
  int in_place_input(int output) const override { return base_->in_place_input(output); }
  void run(const Execution& execution) const override { run_(*base_, execution); }

 private:
  std::shared_ptr<const Operation> base_;
  Run run_;
};

/// The nodes of a program that are this operation, to be changed behind the Builder's back.
inline std::vector<Node*> nodes_of(const Program& program, std::string_view operation) {
  std::vector<Node*> found;
  for (const Node& node : program.nodes()) {
    if (node.operation->name() == operation) found.push_back(const_cast<Node*>(&node));
  }
  return found;
}

/// The nodes of a program, to be left out, repeated or moved behind the Builder's back.
inline std::vector<Node>& all_nodes(const Program& program) {
  return const_cast<std::vector<Node>&>(program.nodes());
}

/// Lets a function run these nodes instead of their operations.
inline void run_by(const std::vector<Node*>& nodes, const ChangedOperation::Run& run) {
  for (Node* node : nodes) {
    node->operation = std::make_shared<ChangedOperation>(node->operation, run);
  }
}

/// Makes a rank report another loss than the others.
inline void add_to_loss_of(int rank, const StepPrograms& programs) {
  const Program& update = programs.update.program;
  if (update.rank() != rank) return;
  const Value loss = update.base(programs.update.totals.at(programs.model.sums.all().front().name));
  for (Node* sum : nodes_of(update, "take_sum")) {
    if (update.base(sum->inputs[0]).id != loss.id) continue;
    run_by({sum}, [](const Operation& taken, const Execution& execution) {
      taken.run(execution);
      execution.inputs[0].values<double>()[0] += 1;
    });
  }
}

/// The numbers of a tensor of f32 or f64 before they are changed.
template <typename T>
std::vector<T> copied(const Tensor& tensor) {
  const std::span<const T> values = tensor.values<T>();
  return {values.begin(), values.end()};
}

}  // namespace tessera::testing
