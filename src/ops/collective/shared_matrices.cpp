#include "ops/collective/shared_matrices.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "comm/call_list.h"
#include "comm/communicator.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// The base of GatherAtOwners and ReturnToPieces. It knows which pieces travel between which ranks.
/// "Owned" matrices are those that this rank owns.
class SharedMatrices : public Operation {
 public:
  SharedMatrices(const Program& program, const MatrixSharing& sharing)
      : sharing_(sharing), mesh_(program.mesh()) {
    std::erase_if(sharing_.axes, [&](Axis axis) { return mesh_.size(axis) == 1; });
    const std::vector<int> group = mesh_.group(program.rank(), sharing_.axes);
    for (const int rank : sharing_.ranks) {
      peers_.push_back(static_cast<int>(std::ranges::find(group, rank) - group.begin()));
    }
  }

  Lane lane() const override { return Lane::reductions; }
  std::vector<std::vector<Axis>> group_axes() const override { return {sharing_.axes}; }

 protected:
  const std::vector<SharedMatrix>& matrices() const { return sharing_.matrices; }
  bool owns(const SharedMatrix& matrix) const { return matrix.owner == sharing_.position; }
  const ElementRun& own_piece(const SharedMatrix& matrix) const {
    return matrix.pieces[static_cast<size_t>(sharing_.position)];
  }
  void require_type(const Distribution& found, const Distribution& expected,
                    std::string_view operand) const {
    if (found == expected) return;
    throw DistributionError(fmt::format("{}: '{}' is {}; expected {}", name(), operand,
                                        found.text(mesh_), expected.text(mesh_)));
  }
  void require_pieces(std::span<const Spec> pieces) const {
    for (size_t i = 0; i < matrices().size(); ++i) {
      require_type(pieces[i].distribution, matrices()[i].piece_distribution,
                   fmt::format("piece {}", i));
      const Shape expected{1, own_piece(matrices()[i]).length};
      TESSERA_EXPECT(*this, pieces[i].shape == expected && pieces[i].dtype == pieces[0].dtype,
                     "a piece {}; expected {}", text_of(pieces[i]), expected.text());
    }
  }

  /// The pieces that travel between this rank and others.
  enum class Traffic {
    owned,   ///< the other ranks' pieces of the matrices that this rank owns
    foreign  ///< this rank's pieces of the matrices that other ranks own
  };
  /// Calls visit(matrix index, peer, run of the matrix) for each piece of this traffic. Only the
  /// pieces of other ranks may be empty: MatrixSharing has no matrix without a piece of this rank.
  template <typename Visit>
  void for_messages(Traffic traffic, Visit&& visit) const {
    for (size_t i = 0; i < matrices().size(); ++i) {
      const SharedMatrix& matrix = matrices()[i];
      if (owns(matrix) != (traffic == Traffic::owned)) continue;
      if (traffic == Traffic::foreign) {
        visit(i, peers_[static_cast<size_t>(matrix.owner)], own_piece(matrix));
        continue;
      }
      for (size_t position = 0; position < matrix.pieces.size(); ++position) {
        const ElementRun& piece = matrix.pieces[position];
        if (piece.length > 0 && static_cast<int>(position) != sharing_.position) {
          visit(i, peers_[position], piece);
        }
      }
    }
  }
  /// Returns the cost of sending pieces. `piece` gives the type of their elements.
  Cost cost_of_sending(Traffic sent, const Spec& piece) const {
    int64_t elements = 0;
    for_messages(sent, [&](size_t, int, const ElementRun& run) { elements += run.length; });
    const auto bytes = static_cast<double>(elements * dtype_size(piece.dtype));
    return {.bytes = 2 * bytes, .wire = {{sharing_.axes, bytes}}};
  }
  /// Adds messages of both directions. `dtype` is that of the elements.
  void list_messages(const CallListing& listing, Traffic sent, Traffic received,
                     DType dtype) const {
    for_messages(sent, [&](size_t, int peer, const ElementRun& run) {
      listing.group().send(sharing_.name, peer, dtype, {run.length});
    });
    for_messages(received, [&](size_t, int peer, const ElementRun& run) {
      listing.group().receive(sharing_.name, peer, dtype, {run.length});
    });
  }
  /// Returns the messages of this traffic. `wholes` are the owned matrices, by matrix index.
  std::vector<Message> messages(Traffic traffic, std::span<const Tensor> pieces,
                                std::span<const Tensor> wholes) const {
    std::vector<Message> result;
    for_messages(traffic, [&](size_t i, int peer, const ElementRun& run) {
      result.push_back({peer, traffic == Traffic::owned ? wholes[i].view(run.begin, {run.length})
                                                        : pieces[i].view(0, {run.length})});
    });
    return result;
  }
  /// Returns the owned matrices by matrix index. The entries of the other matrices are empty.
  std::vector<Tensor> by_matrix_index(std::span<const Tensor> owned_matrices) const {
    std::vector<Tensor> result(matrices().size());
    size_t next = 0;
    for (size_t i = 0; i < result.size(); ++i) {
      if (owns(matrices()[i])) result[i] = owned_matrices[next++];
    }
    return result;
  }
  /// Calls visit(piece, the same elements in the matrix) for this rank's pieces of owned matrices.
  template <typename Visit>
  void for_own_pieces(std::span<const Tensor> pieces, std::span<const Tensor> wholes,
                      Visit&& visit) const {
    for (size_t i = 0; i < matrices().size(); ++i) {
      if (!owns(matrices()[i])) continue;
      const ElementRun& run = own_piece(matrices()[i]);
      visit(pieces[i], wholes[i].view(run.begin, pieces[i].shape()));
    }
  }
  const MatrixSharing& sharing() const { return sharing_; }

 private:
  MatrixSharing sharing_;
  Mesh mesh_;
  std::vector<int> peers_;  // positions in the communicator's group, by position in sharing_
};

/// Inputs: pieces. Outputs: the matrices that this rank owns.
class GatherAtOwners final : public SharedMatrices {
 public:
  using SharedMatrices::SharedMatrices;
  std::string_view name() const override { return "gather_at_owners"; }
  std::string labels(std::span<const Spec>) const override { return "pieces -> matrices"; }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    std::vector<Distribution> result;
    for (const SharedMatrix& matrix : matrices()) {
      if (owns(matrix)) result.push_back(matrix.distribution);
    }
    return result;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    require_pieces(inputs);
    std::vector<Spec> outputs;
    for (const SharedMatrix& matrix : matrices()) {
      if (owns(matrix)) outputs.push_back({matrix.shape, inputs[0].dtype, {}});
    }
    return outputs;
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    return cost_of_sending(Traffic::foreign, inputs[0]);
  }
  void run(const Execution& execution) const override {
    const std::vector<Tensor> wholes = by_matrix_index(execution.outputs);
    for_own_pieces(execution.inputs, wholes, [&](const Tensor& piece, const Tensor& matrix_run) {
      copy(execution, piece, matrix_run);
    });
    const auto sends = messages(Traffic::foreign, execution.inputs, wholes);
    const auto receives = messages(Traffic::owned, execution.inputs, wholes);
    execution.groups[0]->exchange(sharing().name, sends, receives, execution.call());
  }
  void list_calls(const CallListing& listing) const override {
    list_messages(listing, Traffic::foreign, Traffic::owned, listing.inputs[0].dtype);
  }
};

/// Inputs: pieces, which are updated, and the matrices that this rank owns.
class ReturnToPieces final : public SharedMatrices {
 public:
  using SharedMatrices::SharedMatrices;
  std::string_view name() const override { return "return_to_pieces"; }
  std::string labels(std::span<const Spec>) const override { return "matrices -> += pieces"; }
  std::vector<int> updated_inputs() const override {
    std::vector<int> result;
    for (size_t i = 0; i < matrices().size(); ++i) result.push_back(static_cast<int>(i));
    return result;
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand> inputs) const override {
    size_t next = 0;  // `inputs` are the matrices alone: updated inputs are not among them
    for (const SharedMatrix& matrix : matrices()) {
      if (!owns(matrix)) continue;
      require_type(inputs[next].spec.distribution, matrix.distribution, inputs[next].name);
      ++next;
    }
    return std::vector<Distribution>{};
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const auto owned =
        std::ranges::count_if(matrices(), [&](const SharedMatrix& m) { return owns(m); });
    TESSERA_EXPECT(*this, std::ssize(inputs) == std::ssize(matrices()) + owned,
                   "{} inputs for {} matrices", inputs.size(), matrices().size());
    require_pieces(inputs.first(matrices().size()));
    return {};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    return cost_of_sending(Traffic::owned, inputs[0]);
  }
  void run(const Execution& execution) const override {
    const auto pieces = std::span(execution.inputs).first(matrices().size());
    const std::vector<Tensor> wholes =
        by_matrix_index(std::span(execution.inputs).subspan(matrices().size()));
    for_own_pieces(pieces, wholes, [&](const Tensor& piece, const Tensor& matrix_run) {
      copy(execution, matrix_run, piece);
    });
    const auto sends = messages(Traffic::owned, pieces, wholes);
    const auto receives = messages(Traffic::foreign, pieces, wholes);
    execution.groups[0]->exchange(sharing().name, sends, receives, execution.call());
  }
  void list_calls(const CallListing& listing) const override {
    list_messages(listing, Traffic::owned, Traffic::foreign, listing.inputs[0].dtype);
  }
};

}  // namespace

std::vector<Value> gather_at_owners(Builder& builder, const MatrixSharing& sharing,
                                    std::span<const Value> pieces) {
  const std::vector<Value> owned = builder.apply(
      std::make_shared<GatherAtOwners>(builder.program(), sharing), {pieces.begin(), pieces.end()});
  std::vector<Value> result;
  size_t next = 0;
  for (const SharedMatrix& matrix : sharing.matrices) {
    result.push_back(matrix.owner == sharing.position ? owned[next++] : Value{});
  }
  return result;
}

void return_to_pieces(Builder& builder, const MatrixSharing& sharing,
                      std::span<const Value> matrices, std::span<const Value> pieces) {
  std::vector<Value> inputs(pieces.begin(), pieces.end());
  for (const Value matrix : matrices) {
    if (matrix) inputs.push_back(matrix);
  }
  builder.apply(std::make_shared<ReturnToPieces>(builder.program(), sharing), std::move(inputs));
}

}  // namespace tessera
