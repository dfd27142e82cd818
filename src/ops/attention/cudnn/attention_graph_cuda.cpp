#include "ops/attention/cudnn/attention_graph_cuda.h"

namespace tessera {
namespace {

using CudnnTensor = CudnnGraph::Tensor;
using Id = CudnnAttentionTensor;

constexpr int64_t kRows = 2, kColumns = 3;  // the dims of scores: queries and keys

/// The tensors of a graph and the steps that both graphs have.
class AttentionWriter {
 public:
  AttentionWriter(CudnnGraph& graph, const CudnnAttentionKind& kind) : graph_(graph), kind_(kind) {}

  /// A matrix [tokens, heads · head_dim] as [sequences, heads, sequence, head_dim].
  CudnnLayout of_queries() const { return rows_of(kind_.heads); }
  CudnnLayout of_keys() const { return rows_of(kind_.kv_heads); }
  /// One number a query.
  CudnnLayout of_rows() const {
    return packed_layout(kind_.sequences, kind_.heads, kind_.sequence, 1);
  }
  CudnnLayout of_scores() const {
    return packed_layout(kind_.sequences, kind_.heads, kind_.sequence, kind_.sequence);
  }

  CudnnTensor bfloat16(Id id, const CudnnLayout& layout) {
    return graph_.memory(static_cast<int64_t>(id), layout, CUDNN_DATA_BFLOAT16);
  }
  CudnnTensor float32(Id id, const CudnnLayout& layout) {
    return graph_.memory(static_cast<int64_t>(id), layout, CUDNN_DATA_FLOAT);
  }
  CudnnTensor number(Id id) { return graph_.number(static_cast<int64_t>(id)); }

  CudnnTensor product(const CudnnTensor& a, const CudnnTensor& b, const CudnnLayout& layout) {
    const CudnnTensor result = graph_.inner(layout, CUDNN_DATA_FLOAT);
    graph_.matmul(a, b, result);
    return result;
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
    const CudnnLayout layout = packed_layout(kind_.sequences, 1, kind_.sequence, 1);
    const CudnnTensor starts =
        graph_.memory(static_cast<int64_t>(Id::document_starts), layout, CUDNN_DATA_INT32);
    return select(CUDNN_POINTWISE_CMP_GE, graph_.index(scores, kColumns), starts, scores, nothing);
  }

  /// A transposed view of probabilities or of their gradients, rounded to bf16 for a product.
  CudnnTensor transposed(const CudnnTensor& scores) {
    const CudnnTensor result = graph_.inner(of_scores().transposed(), CUDNN_DATA_BFLOAT16);
    graph_.reshape(scores, result);
    return result;
  }
  /// The product of scores [keys, queries] and rows of queries, summed over the heads of a group.
  void sum_over_queries(const CudnnTensor& scores, const CudnnTensor& rows,
                        const CudnnTensor& result) {
    if (kind_.heads == kind_.kv_heads) return graph_.matmul(scores, rows, result);
    const CudnnTensor of_heads =
        graph_.inner(packed_layout(kind_.sequences, kind_.heads, kind_.sequence, kind_.head_dim),
                     CUDNN_DATA_BFLOAT16);
    graph_.matmul(scores, rows, of_heads);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, of_heads, result);
  }

 private:
  CudnnLayout rows_of(int64_t heads) const {
    const int64_t row = heads * kind_.head_dim;
    return {{kind_.sequences, heads, kind_.sequence, kind_.head_dim},
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
};

}  // namespace

void write_attention_forward(CudnnGraph& graph, const CudnnAttentionKind& kind) {
  AttentionWriter writer(graph, kind);
  const CudnnTensor q = writer.bfloat16(Id::q, writer.of_queries());
  const CudnnTensor k = writer.bfloat16(Id::k, writer.of_keys().transposed());
  const CudnnTensor v = writer.bfloat16(Id::v, writer.of_keys());
  const CudnnTensor nothing = writer.number(Id::nothing);

  CudnnTensor scores = writer.product(q, k, writer.of_scores());
  scores = graph.pointwise(CUDNN_POINTWISE_MUL, scores, writer.number(Id::scale));
  scores = writer.causal(scores, nothing);
  if (kind.documents) scores = writer.within_documents(scores, nothing);

  const CudnnTensor greatest = writer.reduced(CUDNN_REDUCE_TENSOR_MAX, scores);
  const CudnnTensor below = graph.pointwise(CUDNN_POINTWISE_SUB, scores, greatest);
  const CudnnTensor exponential = graph.pointwise(CUDNN_POINTWISE_EXP, below);
  const CudnnTensor sum = writer.reduced(CUDNN_REDUCE_TENSOR_ADD, exponential);
  const CudnnTensor logarithm = graph.pointwise(CUDNN_POINTWISE_LOG, sum);
  const CudnnTensor log_sum_exp = writer.float32(Id::log_sum_exp, writer.of_rows());
  graph.pointwise(CUDNN_POINTWISE_ADD, greatest, &logarithm, nullptr, log_sum_exp);
  const CudnnTensor probabilities = graph.pointwise(CUDNN_POINTWISE_DIV, exponential, sum,
                                                    {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16});
  graph.matmul(probabilities, v, writer.bfloat16(Id::output, writer.of_queries()));
}

void write_attention_backward(CudnnGraph& graph, const CudnnAttentionKind& kind) {
  AttentionWriter writer(graph, kind);
  const CudnnTensor q = writer.bfloat16(Id::q, writer.of_queries());
  const CudnnTensor k = writer.bfloat16(Id::k, writer.of_keys().transposed());
  const CudnnTensor v = writer.bfloat16(Id::v, writer.of_keys().transposed());
  const CudnnTensor output = writer.bfloat16(Id::output, writer.of_queries());
  const CudnnTensor of_output = writer.bfloat16(Id::of_output, writer.of_queries());
  const CudnnTensor scale = writer.number(Id::scale);
  const CudnnTensor nothing = writer.number(Id::nothing);

  // delta = rowsum(dO · O). The factor 1 stands where cuDNN's pattern has that of dropout.
  const CudnnTensor products = graph.pointwise(CUDNN_POINTWISE_MUL, of_output, output);
  const CudnnTensor row_sums = writer.reduced(CUDNN_REDUCE_TENSOR_ADD, products);
  const CudnnTensor one = writer.number(Id::one);
  const CudnnTensor delta = writer.float32(Id::delta, writer.of_rows());
  graph.pointwise(CUDNN_POINTWISE_MUL, row_sums, &one, nullptr, delta);

  // P = exp(mask(scale · q kᵀ) - log-sum-exp). The documents' mask is a modifier of scores, which
  // in cuDNN's pattern comes before the subtraction; the causal mask by itself comes after it.
  CudnnTensor scores = writer.product(q, k, writer.of_scores());
  scores = graph.pointwise(CUDNN_POINTWISE_MUL, scores, scale);
  if (kind.documents) {
    scores = writer.causal(scores, nothing);
    scores = writer.within_documents(scores, nothing);
  }
  scores = graph.pointwise(CUDNN_POINTWISE_SUB, scores,
                           writer.float32(Id::log_sum_exp, writer.of_rows()));
  if (!kind.documents) scores = writer.causal(scores, nothing);
  const CudnnTensor probabilities = graph.pointwise(CUDNN_POINTWISE_EXP, scores);
  writer.sum_over_queries(writer.transposed(probabilities), of_output,
                          writer.bfloat16(Id::of_v, writer.of_keys()));

  // dS = scale · P · (dO vᵀ - delta)
  CudnnTensor of_scores = writer.product(of_output, v, writer.of_scores());
  of_scores = graph.pointwise(CUDNN_POINTWISE_SUB, of_scores, delta);
  of_scores = graph.pointwise(CUDNN_POINTWISE_MUL, of_scores, probabilities);
  of_scores = graph.pointwise(CUDNN_POINTWISE_MUL, of_scores, scale);
  writer.sum_over_queries(writer.transposed(of_scores), q,
                          writer.bfloat16(Id::of_k, writer.of_keys()));

  const CudnnTensor keys = graph.inner(writer.of_keys(), CUDNN_DATA_BFLOAT16);
  graph.reshape(k, keys);
  const CudnnTensor of_q = writer.bfloat16(Id::of_q, writer.of_queries());
  if (kind.deterministic) return graph.matmul(of_scores, keys, of_q);
  const CudnnTensor sum = writer.float32(
      Id::of_q_sum, packed_layout(kind.sequences, kind.heads, kind.sequence, kind.head_dim));
  graph.matmul(of_scores, keys, sum);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, sum, nullptr, nullptr, of_q);
}

}  // namespace tessera
