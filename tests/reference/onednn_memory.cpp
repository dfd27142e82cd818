// Makes tests/fixtures/gemm/onednn_VERSION.csv anew: what oneDNN asks for on a processor with AMX,
// of which it is told to use less. Reads the products of the fixture that there is, and asks again.
//
//   g++ -std=c++20 -O1 -fopenmp tests/reference/onednn_memory.cpp -ldnnl -o onednn_memory
//   for set in avx512=AVX512_CORE avx512_bf16=AVX512_CORE_BF16 amx=ALL; do
//     ONEDNN_MAX_CPU_ISA=${set#*=} ./onednn_memory ${set%=*} < tests/fixtures/gemm/onednn_2.6.3.csv
//   done
//
// The products are some of those of the shipped configurations with 1, 2 and 16 threads: of each
// kind the two that take most, and three drawn at random. The last ones, with AMX, are of odd
// sizes: those of 44,000 drawn at random that ask for most beside what a plan gives them.
#include <array>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <dnnl.hpp>
#include <omp.h>

namespace {

using dnnl::memory;

memory::data_type type_of(const std::string& name) {
  return name == "bf16" ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc matrix(long rows, long columns, long leading, bool transposed,
                    const std::string& type) {
  return {{rows, columns},
          type_of(type),
          transposed ? memory::dims{1, leading} : memory::dims{leading, 1}};
}

}  // namespace

int main(int, char** arguments) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::vector<std::string> fields;
    std::istringstream text(line);
    for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
    if (fields[0] != arguments[1]) continue;
    const auto number = [&](size_t at) { return std::stol(fields[at]); };
    const long m = number(1), n = number(2), k = number(3);
    omp_set_num_threads(static_cast<int>(number(13)));
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (number(8) != 0) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const memory::desc b = matrix(k, n, number(11), number(7) != 0, fields[4]);
    const memory::desc any({k, n}, type_of(fields[4]), memory::format_tag::any);
    const dnnl::matmul::primitive_desc product(
        {matrix(m, k, number(10), number(6) != 0, fields[4]), number(9) != 0 ? any : b,
         matrix(m, n, number(12), false, fields[5])},
        attributes, engine);
    const size_t packed = product.weights_desc() == b ? 0 : product.weights_desc().get_size();
    for (size_t i = 0; i < 14; ++i) std::printf("%s,", fields[i].c_str());
    std::printf("%zu,%zu\n", product.scratchpad_desc().get_size(), packed);
  }
}
