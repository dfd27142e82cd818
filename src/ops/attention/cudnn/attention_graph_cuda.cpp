#include "ops/attention/cudnn/attention_graph_cuda.h"

#include <optional>

#include "ops/attention/packed_documents.h"

namespace tessera {
namespace {

using CudnnTensor = CudnnGraph::Tensor;
using Id = CudnnAttentionTensor;

constexpr int64_t kRows = 2, kColumns = 3;  // the dims of scores: queries and keys

/// The tensors of a graph and the steps that both graphs have. Of packed documents, a group is what
/// a sequence is otherwise: it begins at an element of its own, and has its own length.
class AttentionWriter {
 public:
  AttentionWriter(CudnnGraph& graph, const CudnnAttentionKind& kind)
      : graph_(graph),
        kind_(kind),
        packed_(kind.documents == CudnnDocuments::packed),
        batch_(packed_ ? DocumentGroups(kind.sequences, kind.sequence).count() : kind.sequences) {
    if (!packed_) return;
    row_offsets_ = of_groups(Id::row_offsets, batch_ + 1);
    key_offsets_ = of_groups(Id::key_offsets, batch_ + 1);
    number_offsets_ = of_groups(Id::number_offsets, batch_ + 1);
    queries_ = of_groups(Id::queries, batch_);
    keys_ = of_groups(Id::keys, batch_);
  }

  /// A matrix [tokens, heads · head_dim] as [sequences, heads, sequence, head_dim].
  CudnnLayout of_queries() const { return rows_of(kind_.heads); }
  CudnnLayout of_keys() const { return rows_of(kind_.kv_heads); }
  CudnnLayout of_scores() const {
    return packed_layout(batch_, kind_.heads, kind_.sequence, kind_.sequence);
  }

  CudnnTensor queries(Id id) { return bfloat16(id, of_queries(), row_offsets()); }
  CudnnTensor keys(Id id) { return bfloat16(id, of_keys(), key_offsets()); }
  CudnnTensor transposed_keys(Id id) { return bfloat16(id, of_keys().transposed(), key_offsets()); }
  /// One number a query, in memory: [sequences, heads, sequence], or [tokens, heads] if packed.
  CudnnTensor numbers(Id id) {
    CudnnLayout layout = of_rows();
    if (packed_) layout.strides = {kind_.heads * kind_.sequence, 1, kind_.heads, 1};
    return graph_.memory(static_cast<int64_t>(id), layout, CUDNN_DATA_FLOAT,
                         pointer(number_offsets_));
  }
  /// f32 memory in which the rows of queries are added up.
  CudnnTensor query_sums(Id id) {
    const CudnnLayout layout =
        packed_ ? of_queries() : packed_layout(batch_, kind_.heads, kind_.sequence, kind_.head_dim);
    return graph_.memory(static_cast<int64_t>(id), layout, CUDNN_DATA_FLOAT, row_offsets());
  }
  CudnnTensor number(Id id) { return graph_.number(static_cast<int64_t>(id)); }

  /// A product with scores for its result.
  CudnnTensor scores(const CudnnTensor& a, const CudnnTensor& b) {
    const CudnnTensor result = graph_.inner(of_scores(), CUDNN_DATA_FLOAT);
    graph_.matmul(a, b, result, {.rows = queries(), .columns = keys()});
    return result;
  }
  /// Adds rows of keys up, with scores for their factors.
  void sum_over_keys(const CudnnTensor& scores, const CudnnTensor& rows,
                     const CudnnTensor& result) {
    graph_.matmul(scores, rows, result, {.rows = queries(), .sums = keys()});
  }
  CudnnTensor reduced(cudnnReduceTensorOp_t how, const CudnnTensor& x) {
    const CudnnTensor result = graph_.inner(of_rows(), CUDNN_DATA_FLOAT);
    graph_.reduce(how, x, result);
    return result;
  }

  /// A query attends to keys up to itself.
  CudnnTensor causal(const CudnnTensor& scores, const CudnnTensor& nothing) {
    const CudnnTensor row = graph_.index(scores, kRows);
    const CudnnTensor column = graph_.index(scores, kColumns);
    return select(CUDNN_POINTWISE_CMP_GE, row, column, scores, nothing);
  }
  /// A query attends to keys from the start of its document on.
  CudnnTensor within_documents(const CudnnTensor& scores, const CudnnTensor& nothing) {
    const CudnnLayout layout = packed_layout(batch_, 1, kind_.sequence, 1);
    const CudnnTensor starts =
        graph_.memory(static_cast<int64_t>(Id::document_starts), layout, CUDNN_DATA_INT32);
    return select(CUDNN_POINTWISE_CMP_GE, graph_.index(scores, kColumns), starts, scores, nothing);
  }
  /// A group has no queries and no keys after its end.
  CudnnTensor within_lengths(const CudnnTensor& scores, const CudnnTensor& nothing) {
    constexpr CudnnTypes kTruth{CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN};
    const auto below = [&](int64_t dim, const CudnnTensor& length) {
      return graph_.pointwise(CUDNN_POINTWISE_CMP_LT, graph_.index(scores, dim), length, kTruth);
    };
    const CudnnTensor row = below(kRows, *queries_);
    const CudnnTensor column = below(kColumns, *keys_);
    const CudnnTensor exists = graph_.pointwise(CUDNN_POINTWISE_LOGICAL_AND, row, column, kTruth);
    return graph_.select(exists, scores, nothing);
  }

  /// A transposed view of probabilities or of their gradients, rounded to bf16 for a product.
  CudnnTensor transposed(const CudnnTensor& scores) {
    const CudnnTensor result = graph_.inner(of_scores().transposed(), CUDNN_DATA_BFLOAT16);
    graph_.reshape(scores, result);
    return result;
  }
  /// Keys that lie transposed, as rows.
  CudnnTensor rows(const CudnnTensor& transposed_keys) {
    const CudnnTensor result = graph_.inner(of_keys(), CUDNN_DATA_BFLOAT16, key_offsets());
    graph_.reshape(transposed_keys, result);
    return result;
  }
  /// The product of scores [keys, queries] and rows of queries, summed over the heads of a group.
  /// `of_heads` is memory for what is summed, where cuDNN takes it from us.
  void sum_over_queries(const CudnnTensor& scores, const CudnnTensor& rows, Id of_heads,
                        const CudnnTensor& result) {
    const CudnnGraph::MatmulSizes sizes{.rows = keys(), .sums = queries()};
    if (kind_.heads == kind_.kv_heads) return graph_.matmul(scores, rows, result, sizes);
    // Offsets are those of the result: cuDNN multiplies them by the heads of a group.
    const CudnnTensor products =
        packed_ ? bfloat16(of_heads, of_queries(), key_offsets())
                : graph_.inner(packed_layout(batch_, kind_.heads, kind_.sequence, kind_.head_dim),
                               CUDNN_DATA_BFLOAT16);
    graph_.matmul(scores, rows, products, sizes);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, products, result);
  }

 private:
  static const CudnnTensor* pointer(const std::optional<CudnnTensor>& tensor) {
    return tensor ? &*tensor : nullptr;
  }
  const CudnnTensor* row_offsets() const { return pointer(row_offsets_); }
  const CudnnTensor* key_offsets() const { return pointer(key_offsets_); }
  const CudnnTensor* queries() const { return pointer(queries_); }
  const CudnnTensor* keys() const { return pointer(keys_); }

  CudnnTensor of_groups(Id id, int64_t count) {
    return graph_.memory(static_cast<int64_t>(id), packed_layout(count, 1, 1, 1), CUDNN_DATA_INT32);
  }
  CudnnTensor bfloat16(Id id, const CudnnLayout& layout, const CudnnTensor* offsets) {
    return graph_.memory(static_cast<int64_t>(id), layout, CUDNN_DATA_BFLOAT16, offsets);
  }
  CudnnLayout of_rows() const { return packed_layout(batch_, kind_.heads, kind_.sequence, 1); }
  CudnnLayout rows_of(int64_t heads) const {
    const int64_t row = heads * kind_.head_dim;
    return {{batch_, heads, kind_.sequence, kind_.head_dim},
            {kind_.sequence * row, kind_.head_dim, row, 1}};
  }
  CudnnTensor select(cudnnPointwiseMode_t comparison, const CudnnTensor& a, const CudnnTensor& b,
                     const CudnnTensor& scores, const CudnnTensor& nothing) {
    const CudnnTensor attends =
        graph_.pointwise(comparison, a, b, {CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN});
    return graph_.select(attends, scores, nothing);
  }

  CudnnGraph& graph_;
  const CudnnAttentionKind& kind_;
  bool packed_;
  int64_t batch_;  // sequences, or groups of packed documents
  // Of packed documents:
  std::optional<CudnnTensor> row_offsets_, key_offsets_, number_offsets_, queries_, keys_;
};

}  // namespace

void write_attention_forward(CudnnGraph& graph, const CudnnAttentionKind& kind) {
  AttentionWriter writer(graph, kind);
  const CudnnTensor q = writer.queries(Id::q);
  const CudnnTensor k = writer.transposed_keys(Id::k);
  const CudnnTensor v = writer.keys(Id::v);
  const CudnnTensor nothing = writer.number(Id::nothing);

  CudnnTensor scores = writer.scores(q, k);
  scores = graph.pointwise(CUDNN_POINTWISE_MUL, scores, writer.number(Id::scale));
  if (kind.documents == CudnnDocuments::packed) {
    scores = writer.within_documents(scores, nothing);
    scores = writer.within_lengths(scores, nothing);
  }
  scores = writer.causal(scores, nothing);
  if (kind.documents == CudnnDocuments::mask) scores = writer.within_documents(scores, nothing);

  const CudnnTensor greatest = writer.reduced(CUDNN_REDUCE_TENSOR_MAX, scores);
  const CudnnTensor below = graph.pointwise(CUDNN_POINTWISE_SUB, scores, greatest);
  const CudnnTensor exponential = graph.pointwise(CUDNN_POINTWISE_EXP, below);
  const CudnnTensor sum = writer.reduced(CUDNN_REDUCE_TENSOR_ADD, exponential);
  const CudnnTensor logarithm = graph.pointwise(CUDNN_POINTWISE_LOG, sum);
  graph.pointwise(CUDNN_POINTWISE_ADD, greatest, &logarithm, nullptr,
                  writer.numbers(Id::log_sum_exp));
  const CudnnTensor probabilities = graph.pointwise(CUDNN_POINTWISE_DIV, exponential, sum,
                                                    {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16});
  writer.sum_over_keys(probabilities, v, writer.queries(Id::output));
}

void write_attention_backward(CudnnGraph& graph, const CudnnAttentionKind& kind) {
  AttentionWriter writer(graph, kind);
  const CudnnTensor q = writer.queries(Id::q);
  const CudnnTensor k = writer.transposed_keys(Id::k);
  const CudnnTensor v = writer.transposed_keys(Id::v);
  const CudnnTensor output = writer.queries(Id::output);
  const CudnnTensor of_output = writer.queries(Id::of_output);
  const CudnnTensor scale = writer.number(Id::scale);
  const CudnnTensor nothing = writer.number(Id::nothing);

  // delta = rowsum(dO · O). The factor 1 stands where cuDNN's pattern has that of dropout.
  const CudnnTensor products = graph.pointwise(CUDNN_POINTWISE_MUL, of_output, output);
  const CudnnTensor row_sums = writer.reduced(CUDNN_REDUCE_TENSOR_ADD, products);
  const CudnnTensor one = writer.number(Id::one);
  const CudnnTensor delta = writer.numbers(Id::delta);
  graph.pointwise(CUDNN_POINTWISE_MUL, row_sums, &one, nullptr, delta);

  // P = exp(mask(scale · q kᵀ) - log-sum-exp). The documents' mask is a modifier of scores, which
  // in cuDNN's pattern comes before the subtraction; the causal mask comes after it, but where
  // documents are a mask alone.
  CudnnTensor scores = writer.scores(q, k);
  scores = graph.pointwise(CUDNN_POINTWISE_MUL, scores, scale);
  if (kind.documents == CudnnDocuments::mask) scores = writer.causal(scores, nothing);
  if (kind.documents != CudnnDocuments::none) scores = writer.within_documents(scores, nothing);
  if (kind.documents == CudnnDocuments::packed) scores = writer.within_lengths(scores, nothing);
  scores = graph.pointwise(CUDNN_POINTWISE_SUB, scores, writer.numbers(Id::log_sum_exp));
  if (kind.documents != CudnnDocuments::mask) scores = writer.causal(scores, nothing);
  const CudnnTensor probabilities = graph.pointwise(CUDNN_POINTWISE_EXP, scores);
  writer.sum_over_queries(writer.transposed(probabilities), of_output, Id::of_v_heads,
                          writer.keys(Id::of_v));

  // dS = scale · P · (dO vᵀ - delta)
  CudnnTensor of_scores = writer.scores(of_output, v);
  of_scores = graph.pointwise(CUDNN_POINTWISE_SUB, of_scores, delta);
  of_scores = graph.pointwise(CUDNN_POINTWISE_MUL, of_scores, probabilities);
  of_scores = graph.pointwise(CUDNN_POINTWISE_MUL, of_scores, scale);
  writer.sum_over_queries(writer.transposed(of_scores), q, Id::of_k_heads, writer.keys(Id::of_k));

  const CudnnTensor keys = writer.rows(k);
  const CudnnTensor of_q = writer.queries(Id::of_q);
  if (kind.deterministic) return writer.sum_over_keys(of_scores, keys, of_q);
  const CudnnTensor sum = writer.query_sums(Id::of_q_sum);
  writer.sum_over_keys(of_scores, keys, sum);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, sum, nullptr, nullptr, of_q);
}

}  // namespace tessera
