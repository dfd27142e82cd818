#include "engine/gemm_json.h"

#include <nlohmann/json.hpp>

namespace tessera {

nlohmann::ordered_json gemm_json(const GemmShape& shape) {
  return {{"m", shape.m},
          {"n", shape.n},
          {"k", shape.k},
          {"input", dtype_name(shape.input)},
          {"output", dtype_name(shape.output)},
          {"transpose_a", shape.transpose_a},
          {"transpose_b", shape.transpose_b},
          {"accumulate", shape.accumulate},
          {"lda", shape.lda},
          {"ldb", shape.ldb},
          {"ldc", shape.ldc}};
}

nlohmann::ordered_json product_json(const GemmShape& shape) {
  nlohmann::ordered_json json = gemm_json(shape);
  json["packed_b"] = shape.packed_b;
  json["threads"] = shape.threads;
  return json;
}

}  // namespace tessera
