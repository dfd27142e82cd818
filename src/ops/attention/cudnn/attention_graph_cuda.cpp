#include "ops/attention/cudnn/attention_graph_cuda.h"

#include <optional>

#include "ops/attention/packed_documents.h"

// The graphs of attention for cuDNN, forward and backward. cuDNN fuses a graph into one kernel if
// it recognises the graph's pattern. So the operations, their order and even factors of 1 follow
// the patterns of NVIDIA's frontend. AttentionWriter has the steps that both graphs share.

namespace tessera {
namespace {

using CudnnTensor = CudnnGraph::Tensor;
using Id = CudnnAttentionTensor;

constexpr int64_t kRows = 2, kColumns = 3;  // the dims of scores: queries and keys

/// A writer of the tensors and the steps that both graphs have. With packed documents, a group
/// takes the role of a sequence: it has its own offset and its own length.
class AttentionWriter {
 public:
  AttentionWriter(CudnnGraph& graph, const CudnnAttentionKind& kind)
      : graph_(graph),
        kind_(kind),
        packed_(kind.documents == CudnnDocuments::packed),
        batch_(packed_ ? DocumentGroups(kind.sequences, kind.sequence).count() : kind.sequences) {
    if (!packed_) return;
    row_offsets_ = group_numbers(Id::row_offsets, batch_ + 1);
    key_offsets_ = group_numbers(Id::key_offsets, batch_ + 1);
    number_offsets_ = group_numbers(Id::number_offsets, batch_ + 1);
    queries_ = group_numbers(Id::queries, batch_);
    keys_ = group_numbers(Id::keys, batch_);
  }

  CudnnLayout query_layout() const { return rows_of(kind_.heads); }
  CudnnLayout key_layout() const { return rows_of(kind_.kv_heads); }
  CudnnLayout score_layout() const {
    return packed_layout(batch_, kind_.heads, kind_.sequence, kind_.sequence);
  }

  CudnnTensor queries(Id id) { return bfloat16(id, query_layout(), row_offsets()); }
  CudnnTensor keys(Id id) { return bfloat16(id, key_layout(), key_offsets()); }
  CudnnTensor transposed_keys(Id id) {
    return bfloat16(id, key_layout().transposed(), key_offsets());
  }
  /// Returns a tensor in memory of one number per query: [sequences, heads, sequence], or [tokens,
  /// heads] if packed.
  CudnnTensor query_numbers(Id id) {
    CudnnLayout layout = row_layout();
    if (packed_) layout.strides = {kind_.heads * kind_.sequence, 1, kind_.heads, 1};
    return graph_.memory(static_cast<int64_t>(id), layout, CUDNN_DATA_FLOAT,
                         pointer(number_offsets_));
  }
  /// Returns a tensor in f32 memory in which the rows of queries are added up.
  CudnnTensor query_sums(Id id) {
    const CudnnLayout layout =
        packed_ ? query_layout()
                : packed_layout(batch_, kind_.heads, kind_.sequence, kind_.head_dim);
    return graph_.memory(static_cast<int64_t>(id), layout, CUDNN_DATA_FLOAT, row_offsets());
  }
  CudnnTensor scalar(Id id) { return graph_.scalar(static_cast<int64_t>(id)); }

  /// Returns the product of a and b, which has the layout of scores.
  CudnnTensor scores(const CudnnTensor& a, const CudnnTensor& b) {
    const CudnnTensor result = graph_.inner(score_layout(), CUDNN_DATA_FLOAT);
    graph_.matmul(a, b, result, {.rows = queries(), .columns = keys()});
    return result;
  }
  /// Sets result = scores · rows, a sum of rows of keys with scores as factors.
  void sum_over_keys(const CudnnTensor& scores, const CudnnTensor& rows,
                     const CudnnTensor& result) {
    graph_.matmul(scores, rows, result, {.rows = queries(), .sums = keys()});
  }
  CudnnTensor reduced(cudnnReduceTensorOp_t how, const CudnnTensor& x) {
    const CudnnTensor result = graph_.inner(row_layout(), CUDNN_DATA_FLOAT);
    graph_.reduce(how, x, result);
    return result;
  }

  /// Returns scores with a causal mask: a query attends to keys up to itself. In this and the next
  /// functions, `nothing` is the score of a masked key.
  CudnnTensor causal(const CudnnTensor& scores, const CudnnTensor& nothing) {
    const CudnnTensor row = graph_.index(scores, kRows);
    const CudnnTensor column = graph_.index(scores, kColumns);
    return select(row, column, scores, nothing);
  }
  /// Returns scores with a mask of documents: a query attends to keys from the start of its
  /// document on.
  CudnnTensor within_documents(const CudnnTensor& scores, const CudnnTensor& nothing) {
    const CudnnLayout layout = packed_layout(batch_, 1, kind_.sequence, 1);
    const CudnnTensor starts =
        graph_.memory(static_cast<int64_t>(Id::document_starts), layout, CUDNN_DATA_INT32);
    return select(graph_.index(scores, kColumns), starts, scores, nothing);
  }
  /// Returns scores with a mask of lengths: a group has no queries and no keys after its end.
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

  /// Returns a transposed view of probabilities or of their gradients, rounded to bf16 for a
  /// product.
  CudnnTensor transposed(const CudnnTensor& scores) {
    return graph_.reshape(scores, score_layout().transposed());
  }
  /// Returns keys, which are given transposed, as rows.
  CudnnTensor rows(const CudnnTensor& transposed_keys) {
    return graph_.reshape(transposed_keys, key_layout(), key_offsets());
  }
  /// Sets `result` to the product of scores [keys, queries] and rows of queries, summed over the
  /// heads of a group. `head_products` is memory for the products of each head, which cuDNN takes
  /// from the caller only if packed.
  void sum_over_queries(const CudnnTensor& scores, const CudnnTensor& rows, Id head_products,
                        const CudnnTensor& result) {
    const CudnnGraph::MatmulSizes sizes{.rows = keys(), .sums = queries()};
    if (kind_.heads == kind_.kv_heads) return graph_.matmul(scores, rows, result, sizes);
    // The offsets are those of the result: cuDNN multiplies them by the heads of a group.
    const CudnnTensor products =
        packed_ ? bfloat16(head_products, query_layout(), key_offsets())
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

  /// Returns `count` integers in memory, one for each group of documents or one more.
  CudnnTensor group_numbers(Id id, int64_t count) {
    return graph_.memory(static_cast<int64_t>(id), packed_layout(count, 1, 1, 1), CUDNN_DATA_INT32);
  }
  CudnnTensor bfloat16(Id id, const CudnnLayout& layout, const CudnnTensor* offsets) {
    return graph_.memory(static_cast<int64_t>(id), layout, CUDNN_DATA_BFLOAT16, offsets);
  }
  CudnnLayout row_layout() const { return packed_layout(batch_, kind_.heads, kind_.sequence, 1); }
  /// Returns the layout of [tokens, heads · head_dim] as [batch, heads, sequence, head_dim].
  CudnnLayout rows_of(int64_t heads) const {
    const int64_t row = heads * kind_.head_dim;
    return {{batch_, heads, kind_.sequence, kind_.head_dim},
            {kind_.sequence * row, kind_.head_dim, row, 1}};
  }
  /// Returns the scores where a >= b, and `nothing` elsewhere.
  CudnnTensor select(const CudnnTensor& a, const CudnnTensor& b, const CudnnTensor& scores,
                     const CudnnTensor& nothing) {
    const CudnnTensor attends =
        graph_.pointwise(CUDNN_POINTWISE_CMP_GE, a, b, {CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN});
    return graph_.select(attends, scores, nothing);
  }

  CudnnGraph& graph_;
  const CudnnAttentionKind& kind_;
  bool packed_;
  int64_t batch_;  // sequences, or groups of packed documents
  // With packed documents only:
  std::optional<CudnnTensor> row_offsets_, key_offsets_, number_offsets_, queries_, keys_;
};

}  // namespace

void write_attention_forward(CudnnGraph& graph, const CudnnAttentionKind& kind) {
  AttentionWriter writer(graph, kind);
  const CudnnTensor q = writer.queries(Id::q);
  const CudnnTensor k = writer.transposed_keys(Id::k);
  const CudnnTensor v = writer.keys(Id::v);
  const CudnnTensor nothing = writer.scalar(Id::nothing);

  CudnnTensor scores = writer.scores(q, k);
  scores = graph.pointwise(CUDNN_POINTWISE_MUL, scores, writer.scalar(Id::scale));
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
                  writer.query_numbers(Id::log_sum_exp));
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
  const CudnnTensor output_gradient = writer.queries(Id::output_gradient);
  const CudnnTensor scale = writer.scalar(Id::scale);
  const CudnnTensor nothing = writer.scalar(Id::nothing);

  // delta = rowsum(dO · O). The factor 1 is the one that cuDNN's pattern has for dropout.
  const CudnnTensor products = graph.pointwise(CUDNN_POINTWISE_MUL, output_gradient, output);
  const CudnnTensor row_sums = writer.reduced(CUDNN_REDUCE_TENSOR_ADD, products);
  const CudnnTensor one = writer.scalar(Id::one);
  const CudnnTensor delta = writer.query_numbers(Id::delta);
  graph.pointwise(CUDNN_POINTWISE_MUL, row_sums, &one, nullptr, delta);

  // P = exp(mask(scale · q kᵀ) - log-sum-exp). In cuDNN's pattern the mask of documents comes
  // before the subtraction. The causal mask comes after it, except with CudnnDocuments::mask.
  CudnnTensor scores = writer.scores(q, k);
  scores = graph.pointwise(CUDNN_POINTWISE_MUL, scores, scale);
  if (kind.documents == CudnnDocuments::mask) scores = writer.causal(scores, nothing);
  if (kind.documents != CudnnDocuments::none) scores = writer.within_documents(scores, nothing);
  if (kind.documents == CudnnDocuments::packed) scores = writer.within_lengths(scores, nothing);
  scores = graph.pointwise(CUDNN_POINTWISE_SUB, scores, writer.query_numbers(Id::log_sum_exp));
  if (kind.documents != CudnnDocuments::mask) scores = writer.causal(scores, nothing);
  const CudnnTensor probabilities = graph.pointwise(CUDNN_POINTWISE_EXP, scores);
  writer.sum_over_queries(writer.transposed(probabilities), output_gradient, Id::v_gradient_heads,
                          writer.keys(Id::v_gradient));

  // dS = scale · P · (dO vᵀ - delta)
  CudnnTensor score_gradients = writer.scores(output_gradient, v);
  score_gradients = graph.pointwise(CUDNN_POINTWISE_SUB, score_gradients, delta);
  score_gradients = graph.pointwise(CUDNN_POINTWISE_MUL, score_gradients, probabilities);
  score_gradients = graph.pointwise(CUDNN_POINTWISE_MUL, score_gradients, scale);
  writer.sum_over_queries(writer.transposed(score_gradients), q, Id::k_gradient_heads,
                          writer.keys(Id::k_gradient));

  const CudnnTensor keys = writer.rows(k);
  const CudnnTensor q_gradient = writer.queries(Id::q_gradient);
  if (kind.deterministic) return writer.sum_over_keys(score_gradients, keys, q_gradient);
  const CudnnTensor sum = writer.query_sums(Id::q_gradient_sums);
  writer.sum_over_keys(score_gradients, keys, sum);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, sum, nullptr, nullptr, q_gradient);
}

}  // namespace tessera
